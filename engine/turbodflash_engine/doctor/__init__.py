"""Why a drafter is rarely right: what is known to go wrong with a pair, tried one by one."""

from turbodflash_engine.doctor.diagnosis import Check, Diagnosis
from turbodflash_engine.doctor.examine import diagnose

__all__ = ["Check", "Diagnosis", "diagnose"]
