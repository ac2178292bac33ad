package bourse

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// ImageHost is the image of a machine that runs as a process on the host. Its command is a program
// on the host.
const ImageHost = "host"

// ImagePull is the image of a machine whose command a poller runs. The machine's worker is a
// gateway, which offers the command to the pollers that are connected to it.
const ImagePull = "pull"

// Config describes a machine, in the JSON format of the Machines API. Supported members have typed
// fields. All other members are stored and returned unchanged. [Fields] lists how each member is
// treated.
type Config struct {
	Image        string            `json:"image"`           // required
	Guest        *Guest            `json:"guest,omitempty"` // set by Normalize if it is nil
	Size         string            `json:"size,omitempty"`  // name of a preset, used instead of Guest; cleared by Normalize
	Env          map[string]string `json:"env,omitempty"`
	Init         Init              `json:"init"`
	Metadata     map[string]string `json:"metadata,omitempty"` // may change without a new version of the machine
	Restart      *Restart          `json:"restart,omitempty"`
	AutoDestroy  bool              `json:"auto_destroy,omitempty"` // destroy the machine once its program has exited and will not be restarted
	StopConfig   *StopConfig       `json:"stop_config,omitempty"`
	Requirements Requirements      `json:"requirements,omitempty"`
	Mounts       []Mount           `json:"mounts,omitempty"`
	Files        []File            `json:"files,omitempty"`
	Rootfs       *Rootfs           `json:"rootfs,omitempty"`
	Runtime      string            `json:"runtime,omitempty"` // added by Bourse: RuntimeVM, or containerd's name of the runtime; default: the worker's
	// AllowEmulation allows a worker without KVM to run a virtual machine. Programs then take about ten times as long. Added by Bourse.
	AllowEmulation bool `json:"allow_emulation,omitempty"`

	Task *TaskConfig `json:"task,omitempty"` // added by Bourse: the task that the machine stays warm for
	StoredConfig
	Schedule Schedule    `json:"schedule,omitempty"`
	Standbys []MachineID `json:"standbys,omitempty"` // primary machines that this machine backs up
	DNS      *DNS        `json:"dns,omitempty"`
}

// StoredConfig contains the parts of a Config that are stored and returned without being interpreted.
// Package workload defines the structure of these fields.
type StoredConfig struct {
	Services   json.RawMessage `json:"services,omitempty"`
	Checks     json.RawMessage `json:"checks,omitempty"`
	Processes  json.RawMessage `json:"processes,omitempty"`
	Containers json.RawMessage `json:"containers,omitempty"`
	Volumes    json.RawMessage `json:"volumes,omitempty"`
	Metrics    json.RawMessage `json:"metrics,omitempty"`
	Statics    json.RawMessage `json:"statics,omitempty"`

	// Rest is a JSON object that contains the members, at any depth, for which Config has no
	// field. Its keys are sorted. It is nil if there are no such members. MarshalJSON restores
	// each member at its original place.
	Rest json.RawMessage `json:"-" cbor:"rest,omitempty"`
}

// Init describes a machine's program. For image "host", the command is Exec. If Exec is empty, it
// is Entrypoint followed by Cmd.
type Init struct {
	Exec       []string `json:"exec,omitempty"`
	Entrypoint []string `json:"entrypoint,omitempty"`
	Cmd        []string `json:"cmd,omitempty"`
	TTY        bool     `json:"tty,omitempty"`
	User       string   `json:"user,omitempty"`        // name or uid, optionally ":group"; added by Bourse for image host
	WorkingDir string   `json:"working_dir,omitempty"` // absolute path; default: the machine's own directory
}

// Command returns the whole command line. It is empty if none is specified.
func (i Init) Command() []string {
	if len(i.Exec) > 0 {
		return i.Exec
	}
	return slices.Concat(i.Entrypoint, i.Cmd)
}

// MetadataReplaces is the metadata key under which a new machine names the ID of the machine that
// it replaces. When the ranking spreads an app's machines, it does not count the machine that is
// being replaced.
const MetadataReplaces = "bourse_replaces"

// MaxStandbys is the maximum number of primary machines that one standby may back up.
const MaxStandbys = 16

// ValidateStandbys returns CodeInvalid if there are more than MaxStandbys IDs, or if an ID is
// malformed.
func ValidateStandbys(ids []MachineID) error {
	if len(ids) > MaxStandbys {
		return Errorf(CodeInvalid, "invalid config.standbys: %d machines, at most %d", len(ids), MaxStandbys)
	}
	for _, id := range ids {
		if err := id.Validate(); err != nil {
			return Errorf(CodeInvalid, "invalid config.standbys: %w", err)
		}
	}
	return nil
}

// RestartPolicy defines when a worker restarts a machine whose program has exited.
type RestartPolicy string

// Restart policies of the Machines API. An empty policy means on-failure.
const (
	RestartNo        RestartPolicy = "no"
	RestartAlways    RestartPolicy = "always"
	RestartOnFailure RestartPolicy = "on-failure"
)

// Restart is a machine's restart policy.
type Restart struct {
	Policy     RestartPolicy `json:"policy,omitempty"`      // default on-failure
	MaxRetries int           `json:"max_retries,omitempty"` // maximum number of restarts within 5 minutes; default 10
}

// StopConfig defines how a machine is stopped.
type StopConfig struct {
	Signal  Signal   `json:"signal,omitempty"`  // signal that is sent first; default SIGINT
	Timeout Duration `json:"timeout,omitempty"` // time until SIGKILL is sent; default 5 s, at most 300 s
}

// Defaults and limits of a config.
const (
	DefaultMaxRetries  = 10
	RestartWindow      = 5 * time.Minute
	DefaultStopSignal  = Signal("SIGINT")
	DefaultStopTimeout = 5 * time.Second
	MaxStopTimeout     = 300 * time.Second

	maxConfigEntries = 1024    // number of entries in env or metadata, or of arguments in a command
	maxConfigString  = 1 << 17 // size of one string, in bytes; this is also the maximum size of an argument of exec
)

// RestartPolicy returns the restart policy, with defaults filled in.
func (c *Config) RestartPolicy() Restart {
	r := Restart{}
	if c.Restart != nil {
		r = *c.Restart
	}
	if r.Policy == "" {
		r.Policy = RestartOnFailure
	}
	if r.MaxRetries == 0 {
		r.MaxRetries = DefaultMaxRetries
	}
	return r
}

// Stop returns the stop signal and the timeout, with defaults filled in.
func (c *Config) Stop() (Signal, time.Duration) {
	signal, timeout := DefaultStopSignal, DefaultStopTimeout
	if c.StopConfig != nil {
		if c.StopConfig.Signal != "" {
			signal = c.StopConfig.Signal
		}
		if c.StopConfig.Timeout > 0 {
			timeout = time.Duration(c.StopConfig.Timeout)
		}
	}
	return signal, timeout
}

// Normalize converts Size to a guest and fills in the guest's defaults, because every reply must
// contain the guest. It returns CodeInvalid if a machine with this config could not run.
func (c *Config) Normalize() error {
	if c.Size != "" {
		if c.Guest != nil {
			return Errorf(CodeInvalid, "invalid config: size and guest cannot be combined")
		}
		g, err := ParseSize(c.Size)
		if err != nil {
			return err
		}
		c.Guest, c.Size = &g, ""
	}
	guest := Guest{}
	if c.Guest != nil {
		guest = *c.Guest
	}
	guest = guest.WithDefaults()
	c.Guest = &guest
	return c.validate()
}

// RuntimeVM is the Runtime of virtual machines, and MinVMMemory is the minimum memory that a
// virtual machine needs to boot.
const (
	RuntimeVM       = "vm"
	MinVMMemory MiB = 128
)

var runtimePattern = regexp.MustCompile(`^[a-z0-9]+([.-][a-z0-9]+)*$`)

func (c *Config) validate() error {
	if err := c.Guest.Validate(); err != nil {
		return err
	}
	switch {
	case c.Image == "":
		return Errorf(CodeInvalid, "invalid config.image: it is required (\"host\" runs a command on the host)")
	case len(c.Image) > 1024 || strings.ContainsFunc(c.Image, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return Errorf(CodeInvalid, "invalid config.image %s", Quoted(c.Image))
	case c.ImageKind() != RegistryImage && len(c.Init.Command()) == 0 && len(c.Processes) == 0:
		return Errorf(CodeInvalid, "invalid config.init: image %s needs a command (init.exec, or entrypoint and cmd)", c.Image)
	case c.Init.WorkingDir != "" && !strings.HasPrefix(c.Init.WorkingDir, "/"):
		return Errorf(CodeInvalid, "invalid config.init.working_dir %s: use an absolute path", Quoted(c.Init.WorkingDir))
	}
	if err := validateStrings("init", c.Init.Command()); err != nil {
		return err
	}
	if err := validateStrings("init", []string{c.Init.User, c.Init.WorkingDir}); err != nil {
		return err
	}
	for what, m := range map[string]map[string]string{"env": c.Env, "metadata": c.Metadata} {
		if err := validateStrings(what, slices.Collect(maps.Keys(m))); err != nil {
			return err
		}
		if err := validateStrings(what, slices.Collect(maps.Values(m))); err != nil {
			return err
		}
	}
	for k := range c.Env {
		if k == "" || strings.Contains(k, "=") {
			return Errorf(CodeInvalid, "invalid config.env name %s", Quoted(k))
		}
	}
	if err := errors.Join(c.validatePolicies(), c.validateStorage()); err != nil {
		return err
	}
	if err := cmp.Or(c.Schedule.Validate(), ValidateStandbys(c.Standbys), c.DNS.Validate()); err != nil {
		return err
	}
	if c.Runtime != "" && c.ImageKind() != RegistryImage {
		return Errorf(CodeInvalid, "invalid config.runtime %s: image %s does not run in a container or virtual machine", Quoted(c.Runtime), Quoted(c.Image))
	}
	if c.Runtime != "" && !runtimePattern.MatchString(c.Runtime) {
		return Errorf(CodeInvalid, "invalid config.runtime %s: use vm, or a name such as io.containerd.runc.v2", Quoted(c.Runtime))
	}
	if c.Runtime == RuntimeVM && c.Guest.GPUs > 0 {
		return Errorf(CodeInvalid, "invalid config.runtime %s: virtual machines do not support GPUs", Quoted(c.Runtime))
	}
	if c.Runtime == RuntimeVM && c.ExtendsVolumes() {
		return Errorf(CodeInvalid, "invalid config.mounts: extend_threshold_percent is not supported with runtime %s, because the worker does not know how full the volume is", Quoted(c.Runtime))
	}
	if c.Runtime == RuntimeVM && c.Guest.MemoryMB < MinVMMemory {
		return Errorf(CodeInvalid, "invalid config.guest.memory_mb %d: a virtual machine needs at least %d MiB", c.Guest.MemoryMB, MinVMMemory)
	}
	if c.Task != nil {
		if c.ImageKind() == PollerImage {
			return Errorf(CodeInvalid, "invalid config.task: a program that a poller runs cannot be reached")
		}
		if err := c.Task.Validate(); err != nil {
			return err
		}
	}
	if err := c.Requirements.Validate(); err != nil {
		return err
	}
	return c.validateSize()
}

func (c *Config) validatePolicies() error {
	switch r := c.RestartPolicy(); {
	case r.Policy != RestartNo && r.Policy != RestartAlways && r.Policy != RestartOnFailure:
		return Errorf(CodeInvalid, "invalid config.restart.policy %s: use no, always or on-failure", Quoted(string(r.Policy)))
	case r.MaxRetries < 0:
		return Errorf(CodeInvalid, "invalid config.restart.max_retries %d", r.MaxRetries)
	}
	if s := c.StopConfig; s != nil {
		if err := s.Signal.Validate(); s.Signal != "" && err != nil {
			return err
		}
		if s.Timeout < 0 || time.Duration(s.Timeout) > MaxStopTimeout {
			return Errorf(CodeInvalid, "invalid config.stop_config.timeout %s: use 0 to %s", time.Duration(s.Timeout), MaxStopTimeout)
		}
	}
	return nil
}

func validateStrings(what string, list []string) error {
	if len(list) > maxConfigEntries {
		return Errorf(CodeInvalid, "invalid config.%s: %d entries, at most %d", what, len(list), maxConfigEntries)
	}
	for _, s := range list {
		if len(s) > maxConfigString {
			return Errorf(CodeInvalid, "invalid config.%s: an entry has %d bytes, at most %d", what, len(s), maxConfigString)
		}
		if strings.ContainsRune(s, 0) {
			return Errorf(CodeInvalid, "invalid config.%s: %s contains a NUL byte", what, Quoted(s))
		}
	}
	return nil
}

// Command is a command line. In JSON, it is a list of arguments, or a string for "sh -c".
type Command []string

// UnmarshalJSON decodes a list of arguments or a string. It returns CodeInvalid if the list or string
// is empty.
func (c *Command) UnmarshalJSON(b []byte) error {
	var text string
	var words []string
	switch {
	case json.Unmarshal(b, &text) == nil && strings.TrimSpace(text) != "":
		words = []string{"sh", "-c", text}
	case json.Unmarshal(b, &words) != nil || len(words) == 0 || words[0] == "":
		return Errorf(CodeInvalid, "invalid command: use a string for sh -c, or a list of arguments")
	}
	for _, w := range words {
		if strings.ContainsRune(w, 0) {
			return Errorf(CodeInvalid, "invalid command: it contains a NUL byte")
		}
	}
	*c = words
	return nil
}

// Public returns c without the parts that may contain secrets: the environment, files, and
// additional programs, which have their own environments. Only the machine's worker may store these
// parts.
func (c Config) Public() Config {
	c.Env, c.Files = nil, nil
	c.Processes, c.Containers = nil, nil
	return c
}

// envPort is the only environment variable that affects a quote. If it is set, the worker does not
// have to assign a port to the machine.
const envPort = "PORT"

// forQuote returns the parts of c that affect a quote. They do not include the program or its
// input.
func (c Config) forQuote() Config {
	_, port := c.Env[envPort]
	out := c.Public()
	out.Init, out.Metadata, out.StoredConfig = Init{}, nil, StoredConfig{}
	out.Schedule, out.Standbys, out.DNS = "", nil, nil
	if port {
		out.Env = map[string]string{envPort: ""}
	}
	if c.ImageKind() != RegistryImage && c.Image != "" {
		out.Init.Exec = []string{"true"} // placeholder: these images require a command
	}
	return out
}

// MaxConfigBytes is the maximum size of a config's JSON, excluding the contents of files, which
// have a separate limit. The size is limited because each worker keeps the configs of its machines
// in memory and on disk, and every server stores their metadata.
const MaxConfigBytes = 256 << 10

// maxConfigDepth is the maximum nesting depth of a config's JSON. The view does not accept deeper
// values. Known members are nested at most 9 levels deep.
const maxConfigDepth = 32

// validateSize returns CodeInvalid if the config is too large or nested too deeply.
func (c *Config) validateSize() error {
	bare := *c
	bare.Files = nil
	raw, err := bare.MarshalJSON()
	if err != nil {
		return Errorf(CodeInvalid, "invalid config: %w", err)
	}
	if len(raw) > MaxConfigBytes {
		return Errorf(CodeInvalid, "invalid config: %d bytes of JSON without its files, at most %d", len(raw), MaxConfigBytes)
	}
	if depth(raw) > maxConfigDepth {
		return Errorf(CodeInvalid, "invalid config: nested deeper than %d", maxConfigDepth)
	}
	return nil
}

// depth returns the nesting depth of a JSON value.
func depth(raw []byte) int {
	deepest, now, quoted := 0, 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			now++
			deepest = max(deepest, now)
		case c == ']' || c == '}':
			now--
		}
	}
	return deepest
}
