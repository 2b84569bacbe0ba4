import unicodedata


def unidecode(text):
    return unicodedata.normalize('NFKD', text).encode('ascii', 'ignore').decode('ascii')
