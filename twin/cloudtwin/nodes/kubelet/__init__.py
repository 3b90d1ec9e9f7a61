"""Plugins of the kubelet: CSI drivers and GPU devices without hardware."""
