package bourse

import (
	"path"
	"strings"
)

// Mount attaches a volume to a machine.
type Mount struct {
	Volume                 VolumeID `json:"volume,omitempty"`
	Path                   string   `json:"path"`           // absolute, in the machine
	Name                   string   `json:"name,omitempty"` // the volume's; filled in by the worker
	SizeGB                 int64    `json:"size_gb,omitempty"`
	Encrypted              bool     `json:"encrypted,omitempty"`
	ExtendThresholdPercent int      `json:"extend_threshold_percent,omitempty"`
	AddSizeGB              int64    `json:"add_size_gb,omitempty"`
	SizeGBLimit            int64    `json:"size_gb_limit,omitempty"`
}

// File is written into a machine before its program starts.
type File struct {
	GuestPath  string `json:"guest_path"`            // absolute
	RawValue   []byte `json:"raw_value,omitempty"`   // base64 in JSON
	SecretName string `json:"secret_name,omitempty"` // instead of RawValue: its value is this one, in base64
	Mode       uint32 `json:"mode,omitempty"`        // permission bits; default 0644
}

// Rootfs says how a container's root file system is made.
type Rootfs struct {
	SizeGB   int64 `json:"size_gb,omitempty"`   // most that the machine may write to it; 0: what the worker allows
	ReadOnly bool  `json:"read_only,omitempty"` // ours
}

const (
	maxMounts    = 1
	maxFiles     = 64
	maxFileBytes = 1 << 20 // of all files together
)

func (c *Config) validateStorage() error {
	if len(c.Mounts) > maxMounts {
		return Errorf(CodeInvalid, "invalid config.mounts: %d, at most %d", len(c.Mounts), maxMounts)
	}
	if len(c.Mounts) > 0 && c.ImageKind() == PollerImage {
		return Errorf(CodeInvalid, "invalid config.mounts: a volume is not where a poller runs")
	}
	for _, m := range c.Mounts {
		if err := m.Volume.Validate(); err != nil {
			return Errorf(CodeInvalid, "invalid config.mounts: %w", err)
		}
		if err := validateGuestPath("mounts", m.Path); err != nil {
			return err
		}
		if p := m.ExtendThresholdPercent; p < 0 || p > 99 || m.AddSizeGB < 0 || m.AddSizeGB > MaxVolumeGB || m.SizeGBLimit < 0 || p > 0 && m.AddSizeGB == 0 {
			return Errorf(CodeInvalid, "invalid config.mounts: extend_threshold_percent is 1 to 99, with an add_size_gb, and a size_gb_limit or none")
		}
	}
	if len(c.Files) > maxFiles {
		return Errorf(CodeInvalid, "invalid config.files: %d, at most %d", len(c.Files), maxFiles)
	}
	if len(c.Files) > 0 && c.ImageKind() != RegistryImage {
		return Errorf(CodeInvalid, "invalid config.files: a machine of image %s has no file system of its own", c.Image)
	}
	total := 0
	for _, f := range c.Files {
		if err := validateGuestPath("files", f.GuestPath); err != nil {
			return err
		}
		if f.SecretName != "" && len(f.RawValue) > 0 {
			return Errorf(CodeInvalid, "invalid config.files: raw_value and secret_name exclude each other")
		}
		if f.Mode > 0o7777 {
			return Errorf(CodeInvalid, "invalid config.files: mode %o", f.Mode)
		}
		total += len(f.RawValue)
	}
	if total > maxFileBytes {
		return Errorf(CodeInvalid, "invalid config.files: %d bytes, at most %d", total, maxFileBytes)
	}
	if r := c.Rootfs; r != nil && (r.SizeGB < 0 || r.SizeGB > MaxVolumeGB) {
		return Errorf(CodeInvalid, "invalid config.rootfs.size_gb %d: use 0 to %d", r.SizeGB, MaxVolumeGB)
	}
	return nil
}

// validateGuestPath takes absolute paths below the root that are written as
// they are meant: nothing in them leads elsewhere.
func validateGuestPath(what, p string) error {
	if !path.IsAbs(p) || path.Clean(p) != p || p == "/" || len(p) > 4096 || strings.ContainsRune(p, 0) {
		return Errorf(CodeInvalid, "invalid config.%s path %s: use an absolute path below /, without . and ..", what, Quoted(p))
	}
	return nil
}
