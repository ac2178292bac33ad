package fabric

import (
	"net/http"
	"time"

	"github.com/bourse-dev/bourse"
)

// Verbs for machines.
var (
	MachineList      = read[MachinesQuery, []bourse.Machine]("machine/list")
	MachineShow      = read[bourse.MachineID, bourse.Machine]("machine/show") // includes the machine's latest events
	MachineEvents    = read[EventsQuery, []bourse.Event]("machine/events")    // returns the newest events first
	MachineWait      = read[WaitQuery, WaitReply]("machine/wait")             // fails with timeout if the condition is not met in time
	MachineUsage     = read[bourse.MachineID, Usage]("machine/usage")
	MachineProcesses = read[bourse.MachineID, []bourse.Process]("machine/ps")       // returns the main process first
	MachineLogs      = lines[LogsQuery, LogLine]("machine/logs", http.MethodGet)    // returns the oldest lines first
	MachineVersions  = read[bourse.MachineID, []bourse.Version]("machine/versions") // returns the stored versions, newest first
	MachineStart     = act[MachineAction, ActReply]("machine/start")                // returns once the machine has started
	MachineStop      = act[MachineAction, ActReply]("machine/stop")                 // returns before the machine has stopped
	MachineSuspend   = act[MachineAction, ActReply]("machine/suspend")              // returns once the machine is suspended
	MachineRestart   = act[MachineAction, ActReply]("machine/restart")              // returns once the machine has restarted
	MachineUpdate    = act[UpdateRequest, ActReply]("machine/update")               // returns once the new version has started or, if SkipLaunch is set, once it exists
	MachineDestroy   = act[MachineAction, ActReply]("machine/destroy")              // returns once the machine has been destroyed
	MachineCordon    = act[MachineAction, ActReply]("machine/cordon")
	MachineUncordon  = act[MachineAction, ActReply]("machine/uncordon")
	MachineSignal    = act[MachineAction, ActReply]("machine/signal")
	MachineLease     = act[LeaseRequest, bourse.Lease]("machine/lease") // acquires or extends the lease
	MachineRelease   = act[MachineAction, ActReply]("machine/release")  // ends the lease
	MachineMetadata  = act[MetadataRequest, bourse.Machine]("machine/metadata")
	MachineExec      = act[ExecRequest, ExecReply]("machine/exec")
	MachineAttach    = pipe[bourse.MachineID]("machine/attach", http.MethodPost)                // runs a command whose streams are frames of package duplex
	MachineTunnel    = pipe[TunnelRequest]("machine/tunnel", http.MethodPost, bourse.RoleProxy) // copies bytes to and from a TCP port
	MachineUse       = act[UseRequest, UseReply]("machine/use", bourse.RoleProxy)               // marks the machine as used; can wait until it accepts connections
)

// MachinesQuery selects machines. An empty field matches every machine.
type MachinesQuery struct {
	App     bourse.AppName `json:"app,omitempty"` // if AppID is empty, matches all apps that have or had this name
	AppID   string         `json:"app_id,omitempty"`
	Name    string         `json:"name,omitempty"`
	Deleted bool           `json:"deleted,omitempty"` // whether to include destroyed machines
}

// EventsQuery selects a machine's latest events.
type EventsQuery struct {
	Machine bourse.MachineID `json:"machine"`
	Limit   int              `json:"limit,omitempty"` // 0 means the worker's default
}

// WaitQuery describes a condition to wait for.
type WaitQuery struct {
	Machine  bourse.MachineID  `json:"machine"`
	States   []bourse.State    `json:"states,omitempty"`   // the machine must reach one of these
	Timeout  bourse.Duration   `json:"timeout,omitempty"`  // 0 means the worker's default
	Instance bourse.InstanceID `json:"instance,omitempty"` // if set, fail if the machine no longer has this version
	After    bourse.EventID    `json:"after,omitempty"`    // if set, only events after this one count
}

// WaitReply contains the machine's state when the condition became true.
type WaitReply struct {
	State    bourse.State      `json:"state"`
	Instance bourse.InstanceID `json:"instance"`
	Event    bourse.EventID    `json:"event"`             // latest event; use it as After in the next wait
	Machine  *bourse.Machine   `json:"machine,omitempty"` // the machine when the wait ended
}

// Usage contains a machine's resource usage and limits.
type Usage struct {
	At        time.Time          `json:"at"`
	CPU       time.Duration      `json:"cpu"`       // CPU time since the machine started; like the fields up to WriteByte, -1 if unavailable
	Throttled time.Duration      `json:"throttled"` // how long the machine has been throttled by its quota
	Memory    int64              `json:"memory"`    // bytes in use
	PIDs      int64              `json:"pids"`
	ReadByte  int64              `json:"read_byte"`
	WriteByte int64              `json:"write_byte"`
	CPUs      float64            `json:"cpus"`            // cores in use, averaged over the last few seconds
	MayCPUs   float64            `json:"may_cpus"`        // limit in cores; 0 means no limit
	MayMemory int64              `json:"may_memory"`      // limit in bytes; 0 means no limit
	Tasks     *bourse.TaskCounts `json:"tasks,omitempty"` // set only for warm machines that have run tasks
}

// LogsQuery selects log lines.
type LogsQuery struct {
	Machine bourse.MachineID `json:"machine"`
	After   string           `json:"after,omitempty"` // only lines after this position
	Since   time.Time        `json:"since,omitzero"`  // only lines since this time; zero means all
	// Number of latest lines; 0 means all, a negative number means none (with Follow: only new lines).
	Tail   int  `json:"tail,omitempty"`
	Follow bool `json:"follow,omitempty"` // whether to continue until the machine is destroyed
}

// LogLine is one line of a machine's output.
type LogLine struct {
	At       time.Time `json:"at"`
	Stream   string    `json:"stream"`
	Text     string    `json:"text"`
	Position string    `json:"position,omitempty"` // this line's position, for LogsQuery.After
}

// MachineAction contains the common parameters of verbs that change a machine. Each verb ignores inapplicable fields.
type MachineAction struct {
	Machine bourse.MachineID `json:"machine"`
	Nonce   string           `json:"nonce,omitempty"`    // nonce of the machine's lease
	Signal  bourse.Signal    `json:"signal,omitempty"`   // for stop, restart and signal
	Timeout bourse.Duration  `json:"timeout,omitempty"`  // for stop and restart; 0 means the machine's own timeout
	Secrets uint64           `json:"secrets,omitempty"`  // for start and restart: minimum version of the app's secrets
	AppKeys bourse.AppKeys   `json:"app_keys,omitempty"` // for start and restart: keys for the app's secrets; empty if the broker has none
	Force   bool             `json:"force,omitempty"`    // for destroy: even if the machine is running; for restart: use SIGKILL
	By      string           `json:"by,omitempty"`       // name of the caller's token, for the machine's events
}

// ActReply contains the machine after the operation, and the state that it was in before the operation.
type ActReply struct {
	Previous bourse.State   `json:"previous"`
	Machine  bourse.Machine `json:"machine"`
}

// UpdateRequest creates a new version of a machine.
type UpdateRequest struct {
	Machine    bourse.MachineID  `json:"machine"`
	Nonce      string            `json:"nonce,omitempty"` // nonce of the machine's lease
	Config     bourse.Config     `json:"config"`
	Current    bourse.InstanceID `json:"current,omitempty"`     // fail with conflict if the machine has another version
	SkipLaunch bool              `json:"skip_launch,omitempty"` // whether to leave the new version stopped
	// Whether to cordon the machine; false leaves an existing cordon in place.
	Cordoned bool `json:"cordoned,omitempty"`
	// If set, Name and Region must be the machine's; otherwise, the update fails.
	Name       string `json:"name,omitempty"`
	Region     string `json:"region,omitempty"`
	LeaseTTL   int64  `json:"lease_ttl,omitempty"` // in seconds; if set, acquire or extend the lease
	LeaseOwner string `json:"lease_owner,omitempty"`
	Secrets    uint64 `json:"secrets,omitempty"` // minimum version of the app's secrets for the new version
	// Minimum version of the app's secrets for the running program. If the program has an older version, it is
	// restarted.
	Renew       uint64         `json:"renew,omitempty"`
	SkipSecrets bool           `json:"skip_secrets,omitempty"`
	AppKeys     bourse.AppKeys `json:"app_keys,omitempty"` // keys for the app's secrets; empty if the broker has none
}

// LeaseRequest acquires a lease, or extends the current one if Nonce is its nonce.
type LeaseRequest struct {
	Machine     bourse.MachineID `json:"machine"`
	Nonce       string           `json:"nonce,omitempty"`
	TTL         time.Duration    `json:"ttl"`
	Owner       string           `json:"owner,omitempty"`
	Description string           `json:"description,omitempty"`
}

// MetadataRequest changes a machine's metadata. A nil or empty value removes a key.
type MetadataRequest struct {
	Machine  bourse.MachineID   `json:"machine"`
	Set      map[string]*string `json:"set"`
	Replace  bool               `json:"replace,omitempty"`  // whether to remove keys that are not in Set
	Instance bourse.InstanceID  `json:"instance,omitempty"` // if set, fail with failed_precondition if the machine has another version
}

// ExecRequest is a command to run in a machine.
type ExecRequest struct {
	Machine bourse.MachineID `json:"machine"`
	Command []string         `json:"command"`
	Stdin   []byte           `json:"stdin,omitempty"`
	Timeout bourse.Duration  `json:"timeout,omitempty"` // the process group is killed after this time; default 60 s, maximum 10 min
}

// ExecReply is the result of a command. Each output is truncated to 1 MiB.
type ExecReply struct {
	Exit   bourse.Exit `json:"exit"`
	Stdout []byte      `json:"stdout,omitempty"`
	Stderr []byte      `json:"stderr,omitempty"`
}

// TunnelRequest names a TCP port of a machine.
type TunnelRequest struct {
	Machine bourse.MachineID `json:"machine"`
	Port    uint16           `json:"port"`
}

// UseRequest declares that a machine is in use or about to be used.
type UseRequest struct {
	Machine  bourse.MachineID `json:"machine"`
	Port     int              `json:"port,omitempty"`     // service port; 0 means the machine's $PORT
	Start    bool             `json:"start,omitempty"`    // whether to start or resume the machine if it is not running
	Wait     bourse.Duration  `json:"wait,omitempty"`     // how long to wait for the machine to run and the port to accept connections; 0 means not at all
	By       bourse.WorkerID  `json:"by"`                 // the calling proxy
	Host     string           `json:"host,omitempty"`     // host of the proxy; see internal/loopback
	TTL      bourse.Duration  `json:"ttl"`                // how long the machine counts as used
	Requests int              `json:"requests,omitempty"` // number of the proxy's requests in progress
}

// UseReply describes how to connect to a machine that is in use.
type UseReply struct {
	State    bourse.State      `json:"state"` // started if the call waited for the machine to run
	Instance bourse.InstanceID `json:"instance"`
	Boot     int               `json:"boot"`              // number of the machine's current start; connections from previous starts are broken
	Port     int               `json:"port,omitempty"`    // for TunnelRequest; may differ from the service's port
	Address  string            `json:"address,omitempty"` // direct address for the caller; if empty, use the tunnel
	TTL      bourse.Duration   `json:"ttl"`               // how long the machine is protected from being stopped as idle
	Others   int               `json:"others,omitempty"`  // number of requests in progress from other proxies
}
