"""Azure's VM sizes, as far as a stack of Everstep may want them. Pure.

Source: Azure documentation, "Sizes for virtual machines", and the spot column of its price table;
retired sizes: "Retired virtual machine sizes". Read 2026-11.
"""

from collections.abc import Mapping

GPUS: Mapping[str, int] = {
    "Standard_NC4as_T4_v3": 1, "Standard_NC8as_T4_v3": 1, "Standard_NC16as_T4_v3": 1,
    "Standard_NC64as_T4_v3": 4,
    "Standard_NV6ads_A10_v5": 1, "Standard_NV12ads_A10_v5": 1, "Standard_NV18ads_A10_v5": 1,
    "Standard_NV36ads_A10_v5": 1, "Standard_NV36adms_A10_v5": 1, "Standard_NV72ads_A10_v5": 2,
    "Standard_NC24ads_A100_v4": 1, "Standard_NC48ads_A100_v4": 2, "Standard_NC96ads_A100_v4": 4,
    "Standard_NC40ads_H100_v5": 1, "Standard_NC80adis_H100_v5": 2,
    "Standard_ND96asr_v4": 8, "Standard_ND96amsr_A100_v4": 8, "Standard_ND96isr_H100_v5": 8,
    "Standard_ND96isr_H200_v5": 8,
}  # fmt: skip
FAMILIES = ("D{n}s_v3", "D{n}s_v4", "D{n}s_v5", "D{n}ds_v5", "D{n}as_v5", "D{n}ads_v5", "D{n}s_v6",
            "D{n}ds_v6", "D{n}as_v6", "D{n}ads_v6", "E{n}s_v5", "E{n}ds_v5", "E{n}as_v5",
            "F{n}s_v2", "E{n}ads_v5", "D{n}lds_v5", "D{n}ls_v5")  # fmt: skip
PLAIN = frozenset(
    f"Standard_{family.format(n=cores)}"
    for family in FAMILIES
    for cores in (2, 4, 8, 16, 32, 48, 64)
) | {"Standard_DS2_v2", "Standard_DS3_v2", "Standard_B2ms", "Standard_B4ms"}
RETIRED = ("Standard_NC6", "Standard_NC12", "Standard_NC24", "Standard_NC6s_v2", "Standard_NC6s_v3",
           "Standard_NC12s_v3", "Standard_NC24s_v3", "Standard_NV6", "Standard_NV12",
           "Standard_NV12s_v3", "Standard_ND6s", "Standard_ND40rs_v2")  # fmt: skip
SIZES = PLAIN | set(GPUS)
