from .base_options import BaseOptions


class TrainOptions(BaseOptions):
    isTrain = True

    def initialize(self, parser):
        parser = BaseOptions.initialize(self, parser)
        parser.add_argument('--display_freq', type=int, default=400)
        parser.add_argument('--print_freq', type=int, default=100)
        parser.add_argument('--save_latest_freq', type=int, default=800)
        parser.add_argument('--save_epoch_freq', type=int, default=2)
        parser.add_argument('--epoch_count', type=int, default=1)
        parser.add_argument('--n_epochs', type=int, default=100)
        parser.add_argument('--n_epochs_decay', type=int, default=100)
        parser.add_argument('--lr', type=float, default=0.002)
        parser.add_argument('--beta1', type=float, default=0.5)
        parser.add_argument('--lambda_L1', type=float, default=50.0)
        return parser
