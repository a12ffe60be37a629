"""Convolutional modules in number: ten on CIFAR-10, a hundred on CIFAR-100."""

from intarsia.studies.scale import cifar10_study, cifar100_study

__all__ = ["cifar10_study", "cifar100_study"]
