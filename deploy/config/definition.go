package config

import (
	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/workload"
)

// Definition contains the fields of a configuration, with the names and the JSON encoding of fly.json. [Fields]
// describes each field. Tags tell the decoder which values are valid: "in" lists the valid words or contains a range,
// "bare" is the unit that applies to a bare number, and "quoted" permits numbers in quotes, as in old files.
type Definition struct {
	AppName          string            `json:"app,omitempty"`
	PrimaryRegion    string            `json:"primary_region,omitempty"`
	KillSignal       string            `json:"kill_signal,omitempty"`
	KillTimeout      bourse.Duration   `json:"kill_timeout,omitempty" bare:"1s" in:"0s..300s"`
	SwapSizeMB       int64             `json:"swap_size_mb,omitempty" in:"0..1048576"`
	ConsoleCommand   string            `json:"console_command,omitempty"`
	HostDedicationID string            `json:"host_dedication_id,omitempty"`
	MachineConfig    string            `json:"machine_config,omitempty"`
	Container        string            `json:"container,omitempty"`
	Build            *Build            `json:"build,omitempty"`
	Deploy           *Deploy           `json:"deploy,omitempty"`
	Env              Texts             `json:"env,omitempty"`
	Processes        map[string]string `json:"processes,omitempty"`
	HTTPService      *HTTPService      `json:"http_service,omitempty"`
	Services         []Service         `json:"services,omitempty"`
	Checks           map[string]Check  `json:"checks,omitempty"`
	MachineChecks    []MachineCheck    `json:"machine_checks,omitempty"`
	Mounts           []Mount           `json:"mounts,omitempty"`
	VM               []VM              `json:"vm,omitempty"`
	Restart          []Restart         `json:"restart,omitempty"`
	Files            []File            `json:"files,omitempty"`
	Metrics          []Metrics         `json:"metrics,omitempty"`
	Statics          []workload.Static `json:"statics,omitempty"`
	Experimental     *Experimental     `json:"experimental,omitempty"`

	// The following fields are specific to Bourse. Only bourse.toml may contain them.
	Requirements bourse.Requirements `json:"requirements,omitempty"`
	Groups       []Group             `json:"groups,omitempty"`
}

// Build describes how the image is built.
type Build struct {
	Image            string            `json:"image,omitempty"`
	Dockerfile       string            `json:"dockerfile,omitempty"`
	Ignorefile       string            `json:"ignorefile,omitempty"`
	Target           string            `json:"build-target,omitempty"`
	Args             map[string]string `json:"args,omitempty"`
	Builder          string            `json:"builder,omitempty"`
	Buildpacks       []string          `json:"buildpacks,omitempty"`
	Builtin          string            `json:"builtin,omitempty"`
	Settings         map[string]any    `json:"settings,omitempty"`
	Compose          *Compose          `json:"compose,omitempty"`
	Compression      string            `json:"compression,omitempty" in:"gzip|zstd"`
	CompressionLevel *int64            `json:"compression_level,omitempty" in:"0..22"`
}

// Compose names a Docker Compose file.
type Compose struct {
	File string `json:"file,omitempty"`
}

// Deploy contains the settings for deploys.
type Deploy struct {
	Strategy       string          `json:"strategy,omitempty" in:"rolling|immediate|canary|bluegreen"`
	MaxUnavailable *float64        `json:"max_unavailable,omitempty"`
	WaitTimeout    bourse.Duration `json:"wait_timeout,omitempty" in:"1s..24h"`
	Command        string          `json:"release_command,omitempty"`
	CommandTimeout bourse.Duration `json:"release_command_timeout,omitempty" in:"1s..24h"`
	CommandVM      *VM             `json:"release_command_vm,omitempty"`
	SeedCommand    string          `json:"seed_command,omitempty"`
	Reserve        bool            `json:"reserve,omitempty"` // specific to Bourse
}

// HTTPService is a service with ports 80 and 443.
type HTTPService struct {
	InternalPort  *int                  `json:"internal_port,omitempty" in:"0..65535" quoted:"too"`
	ForceHTTPS    bool                  `json:"force_https,omitempty"`
	AutoStop      workload.Autostop     `json:"auto_stop_machines,omitempty"`
	AutoStart     *bool                 `json:"auto_start_machines,omitempty"`
	MinRunning    *int                  `json:"min_machines_running,omitempty" in:"0..100000"`
	Processes     []string              `json:"processes,omitempty"`
	Concurrency   *workload.Concurrency `json:"concurrency,omitempty"`
	TLSOptions    *workload.TLSOptions  `json:"tls_options,omitempty"`
	HTTPOptions   *workload.HTTPConfig  `json:"http_options,omitempty"`
	Checks        []HTTPCheck           `json:"checks,omitempty"`
	TCPChecks     []TCPCheck            `json:"tcp_checks,omitempty"`
	MachineChecks []MachineCheck        `json:"machine_checks,omitempty"`
}

// Service describes a port of the machines, and the external ports on which proxies serve it.
type Service struct {
	Protocol      string                `json:"protocol,omitempty" in:"tcp|udp"`
	InternalPort  *int                  `json:"internal_port,omitempty" in:"0..65535" quoted:"too"`
	AutoStop      workload.Autostop     `json:"auto_stop_machines,omitempty"`
	AutoStart     *bool                 `json:"auto_start_machines,omitempty"`
	MinRunning    *int                  `json:"min_machines_running,omitempty" in:"0..100000"`
	Processes     []string              `json:"processes,omitempty"`
	Ports         []workload.PortConfig `json:"ports,omitempty"`
	Concurrency   *workload.Concurrency `json:"concurrency,omitempty"`
	TCPChecks     []TCPCheck            `json:"tcp_checks,omitempty"`
	HTTPChecks    []HTTPCheck           `json:"http_checks,omitempty"`
	MachineChecks []MachineCheck        `json:"machine_checks,omitempty"`
}

// Times contains the timing settings of a check.
type Times struct {
	Interval bourse.Duration `json:"interval,omitempty" bare:"1ms" in:"0s..1h"`
	Timeout  bourse.Duration `json:"timeout,omitempty" bare:"1ms" in:"0s..1h"`
	Grace    bourse.Duration `json:"grace_period,omitempty" bare:"1ms" in:"0s..1h"`
}

// Request describes a check's HTTP request.
type Request struct {
	Method        string            `json:"method,omitempty"`
	Path          string            `json:"path,omitempty"`
	Protocol      string            `json:"protocol,omitempty" in:"http|https"`
	TLSSkipVerify *bool             `json:"tls_skip_verify,omitempty"`
	TLSServerName string            `json:"tls_server_name,omitempty"`
	Headers       map[string]Values `json:"headers,omitempty"`
}

// TCPCheck is a service check that opens a TCP connection.
type TCPCheck struct{ Times }

// HTTPCheck is a service check that sends an HTTP request.
type HTTPCheck struct {
	Times
	Request
}

// Check is a health check that does not belong to a service.
type Check struct {
	Type      string             `json:"type,omitempty" in:"tcp|http"`
	Kind      workload.CheckKind `json:"kind,omitempty" in:"informational|readiness"`
	Port      int                `json:"port,omitempty" in:"0..65535"`
	Processes []string           `json:"processes,omitempty"`
	Times
	Request
}

// MachineCheck describes a temporary machine that tests another machine.
type MachineCheck struct {
	Image       string          `json:"image,omitempty"`
	Entrypoint  Words           `json:"entrypoint,omitempty"`
	Command     Words           `json:"command,omitempty"`
	KillSignal  string          `json:"kill_signal,omitempty"`
	KillTimeout bourse.Duration `json:"kill_timeout,omitempty" bare:"1s" in:"0s..300s"`
}

// Mount describes the volume that each of a group's machines mounts.
type Mount struct {
	Source            string   `json:"source"`
	Destination       string   `json:"destination"`
	Processes         []string `json:"processes,omitempty"`
	InitialSize       GB       `json:"initial_size,omitempty"`
	SnapshotRetention *int64   `json:"snapshot_retention,omitempty" in:"1..60"`
	Snapshots         *bool    `json:"scheduled_snapshots,omitempty"`
	ExtendThreshold   int64    `json:"auto_extend_size_threshold,omitempty" in:"50..99"`
	ExtendBy          GB       `json:"auto_extend_size_increment,omitempty" in:"1GB..100GB"`
	ExtendLimit       GB       `json:"auto_extend_size_limit,omitempty" in:"1GB..500GB"`
}

// VM describes the size of machines.
type VM struct {
	Size             string   `json:"size,omitempty"`
	Memory           MB       `json:"memory,omitempty" in:"1MB..64TB"`
	MemoryMB         int64    `json:"memory_mb,omitempty" in:"1..67108864"`
	MaxMemoryMB      int64    `json:"max_memory_mb,omitempty" in:"0..67108864"`
	CPUs             int64    `json:"cpus,omitempty" in:"1..4096"`
	CPUKind          string   `json:"cpu_kind,omitempty" in:"shared|performance"`
	GPUs             int64    `json:"gpus,omitempty" in:"0..1024"`
	GPUKind          string   `json:"gpu_kind,omitempty"`
	KernelArgs       Words    `json:"kernel_args,omitempty"`
	HostDedicationID string   `json:"host_dedication_id,omitempty"`
	PersistRootfs    string   `json:"persist_rootfs,omitempty" in:"never|restart|always"`
	Processes        []string `json:"processes,omitempty"`
}

// Restart is a restart policy.
type Restart struct {
	Policy    string   `json:"policy,omitempty" in:"never|always|on-failure"`
	Retries   int64    `json:"retries,omitempty" in:"0..1000000"`
	Processes []string `json:"processes,omitempty"`
}

// File describes a file to write into machines before their program starts.
type File struct {
	GuestPath  string   `json:"guest_path"`
	LocalPath  string   `json:"local_path,omitempty"`
	RawValue   string   `json:"raw_value,omitempty"`
	SecretName string   `json:"secret_name,omitempty"`
	Processes  []string `json:"processes,omitempty"`
}

// Metrics describes the endpoint where a program serves its own metrics.
type Metrics struct {
	workload.Metrics
	Processes []string `json:"processes,omitempty"`
}

// Experimental contains experimental settings.
type Experimental struct {
	Cmd            Words     `json:"cmd,omitempty"`
	Entrypoint     Words     `json:"entrypoint,omitempty"`
	Exec           Words     `json:"exec,omitempty"`
	AutoRollback   *bool     `json:"auto_rollback,omitempty"`
	EnableConsul   bool      `json:"enable_consul,omitempty"`
	LazyLoadImages bool      `json:"lazy_load_images,omitempty"`
	MachineConfig  string    `json:"machine_config,omitempty"`
	Attached       *Attached `json:"attached,omitempty"`
}

// Attached describes resources that other apps provide to this one.
type Attached struct {
	Secrets *AttachedSecrets `json:"secrets,omitempty"`
}

// AttachedSecrets describes secrets from other apps.
type AttachedSecrets struct {
	Export map[string]string `json:"export,omitempty"`
}

// Group contains Bourse's own settings for process groups: regions, numbers of machines, and requirements for
// workers.
type Group struct {
	Processes    []string            `json:"processes,omitempty"`
	Regions      []string            `json:"regions,omitempty"`
	Count        *int64              `json:"count,omitempty" in:"0..100000"`
	Counts       map[string]int64    `json:"counts,omitempty" in:"0..100000"`
	Spare        *bool               `json:"spare,omitempty"`
	Requirements bourse.Requirements `json:"requirements,omitempty"`
}
