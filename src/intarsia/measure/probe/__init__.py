"""Probes: diagnoses that change one thing, hold the rest fixed, and say what that identifies."""

from intarsia.measure.probe.contract import FRESH_HEAD, Contract
from intarsia.measure.probe.fresh_head import FreshHead, ProbeScore, fresh_head
from intarsia.measure.probe.head_training import HeadTraining, TrainedHead, train_head, train_heads
from intarsia.measure.probe.joint_training import train_joint
from intarsia.measure.probe.readout import Readout, readout_inputs, readout_of

__all__ = [
    "FRESH_HEAD",
    "Contract",
    "FreshHead",
    "HeadTraining",
    "ProbeScore",
    "Readout",
    "TrainedHead",
    "fresh_head",
    "readout_inputs",
    "readout_of",
    "train_head",
    "train_heads",
    "train_joint",
]
