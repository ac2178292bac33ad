package bourse

import (
	"math"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// CPUKind is the kind of a machine's CPUs: shares of cores that other machines also use, or
// dedicated cores.
type CPUKind string

// CPU kinds of the Machines API.
const (
	CPUShared      CPUKind = "shared"
	CPUPerformance CPUKind = "performance"
)

// Guest is the size of a machine, in the form of the Machines API. A zero field stands for its
// default.
type Guest struct {
	CPUKind  CPUKind `json:"cpu_kind,omitempty"`  // default shared
	CPUs     int64   `json:"cpus,omitempty"`      // default 1; at most MaxCPUs
	MemoryMB MiB     `json:"memory_mb,omitempty"` // default: 256 for each shared CPU, 2048 for each performance CPU
	GPUs     int64   `json:"gpus,omitempty"`
	GPUKind  string  `json:"gpu_kind,omitempty"` // required if GPUs is set
}

// Limits of a guest. They exceed the size of any host, but are small enough that sums of many
// guests do not overflow.
const (
	MaxCPUs   = 4096
	MaxMemory = MiB(64 << 20) // 64 TiB
	MaxGPUs   = 1024
)

// WithDefaults returns g with defaults filled in. It does not validate g.
func (g Guest) WithDefaults() Guest {
	if g.CPUKind == "" {
		g.CPUKind = CPUShared
	}
	if g.CPUs == 0 {
		g.CPUs = 1
	}
	if g.MemoryMB == 0 && g.CPUs > 0 && g.CPUs <= MaxCPUs {
		g.MemoryMB = memoryPerCPU(g.CPUKind) * MiB(g.CPUs)
	}
	if g.GPUs == 0 && g.GPUKind != "" {
		g.GPUs = 1
	}
	return g
}

func memoryPerCPU(k CPUKind) MiB {
	if k == CPUPerformance {
		return 2048
	}
	return 256
}

// Validate returns CodeInvalid if a field is out of range. The memory does not have to be a
// multiple of 256 MiB. Even 1 MiB is valid, because a machine can be a host process.
func (g Guest) Validate() error {
	switch {
	case g.CPUKind != CPUShared && g.CPUKind != CPUPerformance:
		return Errorf(CodeInvalid, "invalid config.guest.cpu_kind %s: use shared or performance", Quoted(string(g.CPUKind)))
	case g.CPUs < 1 || g.CPUs > MaxCPUs:
		return Errorf(CodeInvalid, "invalid config.guest.cpus %d: use 1 to %d", g.CPUs, MaxCPUs)
	case g.MemoryMB < 1 || g.MemoryMB > MaxMemory:
		return Errorf(CodeInvalid, "invalid config.guest.memory_mb %d: use 1 to %d", g.MemoryMB, MaxMemory)
	case g.GPUs < 0 || g.GPUs > MaxGPUs:
		return Errorf(CodeInvalid, "invalid config.guest.gpus %d: use 0 to %d", g.GPUs, MaxGPUs)
	case g.GPUs > 0 && g.GPUKind == "":
		return Errorf(CodeInvalid, "invalid config.guest: gpus requires gpu_kind")
	case g.GPUKind != "" && !isLabel(g.GPUKind):
		return Errorf(CodeInvalid, "invalid config.guest.gpu_kind %s", Quoted(g.GPUKind))
	}
	return nil
}

// presets lists the CPU counts of the Machines API's named sizes, for each CPU kind.
var presets = map[CPUKind][]int64{
	CPUShared:      {1, 2, 4, 6, 8},
	CPUPerformance: {1, 2, 4, 6, 8, 10, 12, 14, 16, 32, 64, 128},
}

// ParseSize parses the name of a preset, such as "shared-cpu-2x" or "performance-4x".
func ParseSize(s string) (Guest, error) {
	for prefix, kind := range map[string]CPUKind{"shared-cpu-": CPUShared, "performance-": CPUPerformance} {
		rest, ok := strings.CutPrefix(s, prefix)
		if !ok {
			continue
		}
		count, ok := strings.CutSuffix(rest, "x")
		n, err := strconv.ParseInt(count, 10, 64)
		if ok && err == nil && slices.Contains(presets[kind], n) {
			return Guest{CPUKind: kind, CPUs: n}.WithDefaults(), nil
		}
		var names []string
		for _, n := range presets[kind] {
			names = append(names, prefix+strconv.FormatInt(n, 10)+"x")
		}
		return Guest{}, Errorf(CodeInvalid, "invalid size %s: use %s", Quoted(s), strings.Join(names, ", "))
	}
	return Guest{}, Errorf(CodeInvalid, "invalid size %s: use one such as shared-cpu-2x or performance-1x", Quoted(s))
}

// Takes returns the resources that a running machine of this size takes from a worker. overcommit
// is the number of shared vCPUs that the worker sells per core; values below 1 and NaN count as 1.
// Fractions of a milliCPU are rounded up, so that many small machines cannot oversell a core. g
// must be valid.
func (g Guest) Takes(overcommit float64) Amounts {
	cpu := g.CPUs * 1000
	if g.CPUKind == CPUShared && overcommit > 1 {
		cpu = max(1, int64(math.Ceil(float64(cpu)/overcommit)))
	}
	a := Amounts{{ResourceCPU, cpu}, {ResourceMemory, int64(g.MemoryMB)}}
	if g.GPUs > 0 {
		a = append(a, Amount{GPUResource(g.GPUKind), g.GPUs})
	}
	return a.Sorted()
}

// Mount attaches a volume to a machine.
type Mount struct {
	Volume                 VolumeID `json:"volume,omitempty"`
	Path                   string   `json:"path"`           // absolute path in the machine
	Name                   string   `json:"name,omitempty"` // name of the volume; set by the worker
	SizeGB                 int64    `json:"size_gb,omitempty"`
	Encrypted              bool     `json:"encrypted,omitempty"`
	ExtendThresholdPercent int      `json:"extend_threshold_percent,omitempty"`
	AddSizeGB              int64    `json:"add_size_gb,omitempty"`
	SizeGBLimit            int64    `json:"size_gb_limit,omitempty"`
}

// File is a file that is written into a machine before its program starts.
type File struct {
	GuestPath  string `json:"guest_path"`            // absolute path
	RawValue   []byte `json:"raw_value,omitempty"`   // contents; base64 in JSON
	SecretName string `json:"secret_name,omitempty"` // name of a secret, used instead of RawValue; its value is the contents in base64
	Mode       uint32 `json:"mode,omitempty"`        // permission bits; default 0644
}

// Rootfs configures a container's root file system.
type Rootfs struct {
	SizeGB   int64 `json:"size_gb,omitempty"`   // maximum amount that the machine may write to it; 0: the worker's limit
	ReadOnly bool  `json:"read_only,omitempty"` // added by Bourse
}

const (
	maxMounts    = 1
	maxFiles     = 64
	maxFileBytes = 1 << 20 // total size of all files, in bytes
)

// ExtendsVolumes reports whether one of the machine's volumes is extended automatically when it
// fills up.
func (c *Config) ExtendsVolumes() bool {
	return slices.ContainsFunc(c.Mounts, func(m Mount) bool { return m.ExtendThresholdPercent > 0 })
}

func (c *Config) validateStorage() error {
	if len(c.Mounts) > maxMounts {
		return Errorf(CodeInvalid, "invalid config.mounts: %d, at most %d", len(c.Mounts), maxMounts)
	}
	if len(c.Mounts) > 0 && c.ImageKind() == PollerImage {
		return Errorf(CodeInvalid, "invalid config.mounts: a poller has no access to volumes")
	}
	for _, m := range c.Mounts {
		if err := m.Volume.Validate(); err != nil {
			return Errorf(CodeInvalid, "invalid config.mounts: %w", err)
		}
		if err := validateGuestPath("mounts", m.Path); err != nil {
			return err
		}
		if p := m.ExtendThresholdPercent; p < 0 || p > 99 || m.AddSizeGB < 0 || m.AddSizeGB > MaxVolumeGB || m.SizeGBLimit < 0 || p > 0 && m.AddSizeGB == 0 {
			return Errorf(CodeInvalid, "invalid config.mounts: extend_threshold_percent must be 1 to 99, and requires add_size_gb")
		}
	}
	if len(c.Files) > maxFiles {
		return Errorf(CodeInvalid, "invalid config.files: %d, at most %d", len(c.Files), maxFiles)
	}
	if len(c.Files) > 0 && c.ImageKind() != RegistryImage {
		return Errorf(CodeInvalid, "invalid config.files: a machine with image %s does not have its own file system", c.Image)
	}
	total := 0
	for _, f := range c.Files {
		if err := validateGuestPath("files", f.GuestPath); err != nil {
			return err
		}
		if f.SecretName != "" && len(f.RawValue) > 0 {
			return Errorf(CodeInvalid, "invalid config.files: raw_value and secret_name cannot be combined")
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

// validateGuestPath returns CodeInvalid unless p is a clean, absolute path below the root.
func validateGuestPath(what, p string) error {
	if !path.IsAbs(p) || path.Clean(p) != p || p == "/" || len(p) > 4096 || strings.ContainsRune(p, 0) {
		return Errorf(CodeInvalid, "invalid config.%s path %s: use an absolute path below /, without . and ..", what, Quoted(p))
	}
	return nil
}

// DNS is the dns section of a config, as in the Machines API.
type DNS struct {
	SkipRegistration bool             `json:"skip_registration,omitempty"`
	Nameservers      []string         `json:"nameservers,omitempty"`
	Searches         []string         `json:"searches,omitempty"`
	Options          []DNSOption      `json:"options,omitempty"`
	ForwardRules     []DNSForwardRule `json:"dns_forward_rules,omitempty"` // stored, but has no effect
	Hostname         string           `json:"hostname,omitempty"`
	HostnameFQDN     string           `json:"hostname_fqdn,omitempty"`
}

// DNSOption is an option in resolv.conf(5).
type DNSOption struct {
	Name  string `json:"name,omitempty"`
	Value string `json:"value,omitempty"`
}

// DNSForwardRule forwards queries for names below a domain to other servers.
type DNSForwardRule struct {
	Basename string `json:"basename,omitempty"`
	Addr     string `json:"addr,omitempty"`
}

var (
	domainPattern = regexp.MustCompile(`^([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?)(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?)*\.?$`)
	optionPattern = regexp.MustCompile(`^[a-z0-9-]{1,32}$`)
)

// Limits from resolv.conf(5) and from the kernel.
const (
	maxNameservers = 3
	maxSearches    = 32
	maxOptions     = 32
	maxDomain      = 253
	maxHostname    = 64
)

// Validate returns CodeInvalid if a value would make a machine's resolv.conf or hosts file invalid.
func (d *DNS) Validate() error {
	if d == nil {
		return nil
	}
	if len(d.Nameservers) > maxNameservers || len(d.Searches) > maxSearches || len(d.Options) > maxOptions {
		return Errorf(CodeInvalid, "invalid config.dns: at most %d nameservers, %d searches and %d options", maxNameservers, maxSearches, maxOptions)
	}
	for _, s := range d.Nameservers {
		if _, err := netip.ParseAddr(s); err != nil {
			return Errorf(CodeInvalid, "invalid config.dns.nameservers: %s is not an IP address", Quoted(s))
		}
	}
	for _, s := range d.Searches {
		if len(s) > maxDomain || !domainPattern.MatchString(s) {
			return Errorf(CodeInvalid, "invalid config.dns.searches: %s is not a domain", Quoted(s))
		}
	}
	for _, o := range d.Options {
		if !optionPattern.MatchString(o.Name) || o.Value != "" && !optionPattern.MatchString(o.Value) {
			return Errorf(CodeInvalid, "invalid config.dns.options: %s", Quoted(o.Name+":"+o.Value))
		}
	}
	for _, s := range []string{d.Hostname, d.HostnameFQDN} {
		if s != "" && (len(s) > maxHostname || !domainPattern.MatchString(s)) {
			return Errorf(CodeInvalid, "invalid config.dns.hostname %s", Quoted(s))
		}
	}
	return nil
}
