"""One plan, several renderings: each module here has `render(plan, language)`.

They say the same in the same words (`wording`), in the same order: what is left to the reader comes first,
for that is the part that nobody else will do; then every change as the guide shows it, in the order of the
script.
"""
