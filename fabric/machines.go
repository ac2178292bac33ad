package fabric

import (
	"net/http"
	"time"

	"github.com/bourse-dev/bourse"
)

// The verbs about machines.
var (
	MachineList      = read[MachinesQuery, []bourse.Machine]("machine/list")
	MachineShow      = read[bourse.MachineID, bourse.Machine]("machine/show") // with its latest events
	MachineEvents    = read[EventsQuery, []bourse.Event]("machine/events")    // newest first
	MachineWait      = read[WaitQuery, WaitReply]("machine/wait")             // timeout: it is in none of the states
	MachineUsage     = read[bourse.MachineID, Usage]("machine/usage")
	MachineProcesses = read[bourse.MachineID, []bourse.Process]("machine/ps")       // its main one first
	MachineLogs      = lines[LogsQuery, LogLine]("machine/logs", http.MethodGet)    // oldest first
	MachineVersions  = read[bourse.MachineID, []bourse.Version]("machine/versions") // newest first; as many as are kept
	MachineStart     = act[Act, ActReply]("machine/start")                          // once it has started
	MachineStop      = act[Act, ActReply]("machine/stop")                           // before it has stopped
	MachineSuspend   = act[Act, ActReply]("machine/suspend")                        // once it is suspended
	MachineRestart   = act[Act, ActReply]("machine/restart")                        // once it has started again
	MachineUpdate    = act[UpdateRequest, ActReply]("machine/update")               // once its new version has started, or is there if that is not to start
	MachineDestroy   = act[Act, ActReply]("machine/destroy")                        // once it is gone
	MachineCordon    = act[Act, ActReply]("machine/cordon")
	MachineUncordon  = act[Act, ActReply]("machine/uncordon")
	MachineSignal    = act[Act, ActReply]("machine/signal")
	MachineLease     = act[LeaseRequest, bourse.Lease]("machine/lease") // takes or extends it
	MachineRelease   = act[Act, ActReply]("machine/release")            // ends the lease
	MachineMetadata  = act[MetadataRequest, bourse.Machine]("machine/metadata")
	MachineExec      = act[ExecRequest, ExecReply]("machine/exec")
	MachineAttach    = pipe[bourse.MachineID]("machine/attach", http.MethodPost)                // a command whose streams are frames of package duplex
	MachineTunnel    = pipe[TunnelRequest]("machine/tunnel", http.MethodPost, bourse.RoleProxy) // bytes to and from a TCP port
	MachineUse       = act[UseRequest, UseReply]("machine/use", bourse.RoleProxy)               // counts it as used; once it accepts connections, if that is waited for
)

// MachinesQuery selects machines: zero fields select all of them.
type MachinesQuery struct {
	App     bourse.AppName `json:"app,omitempty"` // without AppID: of every app that has or had this name
	AppID   string         `json:"app_id,omitempty"`
	Name    string         `json:"name,omitempty"`
	Deleted bool           `json:"deleted,omitempty"` // destroyed ones too
}

// EventsQuery selects a machine's latest events.
type EventsQuery struct {
	Machine bourse.MachineID `json:"machine"`
	Limit   int              `json:"limit,omitempty"` // 0: as many as the worker returns by default
}

// WaitQuery is what to wait for.
type WaitQuery struct {
	Machine  bourse.MachineID  `json:"machine"`
	States   []bourse.State    `json:"states,omitempty"`   // any of them
	Timeout  bourse.Duration   `json:"timeout,omitempty"`  // 0: the worker's default
	Instance bourse.InstanceID `json:"instance,omitempty"` // only while the machine is at this version
	After    bourse.EventID    `json:"after,omitempty"`    // only by an event after this one
}

// WaitReply is the machine's state when the wait ended well.
type WaitReply struct {
	State    bourse.State      `json:"state"`
	Instance bourse.InstanceID `json:"instance"`
	Event    bourse.EventID    `json:"event"`             // the latest; a cursor for the next wait
	Machine  *bourse.Machine   `json:"machine,omitempty"` // as it was when the wait ended
}

// Usage is what a machine uses, and its limits.
type Usage struct {
	At        time.Time         `json:"at"`
	CPU       time.Duration     `json:"cpu"`       // since it started; -1: not accounted. So are all of these
	Throttled time.Duration     `json:"throttled"` // waited for its quota
	Memory    int64             `json:"memory"`    // bytes
	PIDs      int64             `json:"pids"`
	ReadByte  int64             `json:"read_byte"`
	WriteByte int64             `json:"write_byte"`
	CPUs      float64           `json:"cpus"`            // cores in use, over the last seconds
	MayCPUs   float64           `json:"may_cpus"`        // cores that it may use; 0: no limit
	MayMemory int64             `json:"may_memory"`      // bytes; 0: no limit
	Tasks     *bourse.TaskTally `json:"tasks,omitempty"` // of a warm machine that has run some
}

// LogsQuery selects log lines.
type LogsQuery struct {
	Machine bourse.MachineID `json:"machine"`
	After   string           `json:"after,omitempty"`  // only lines behind the one of this position
	Since   time.Time        `json:"since,omitzero"`   // zero: from the beginning
	Tail    int              `json:"tail,omitempty"`   // the last so many; 0: all, negative: none (with Follow: only new ones)
	Follow  bool             `json:"follow,omitempty"` // go on until the machine is destroyed
}

// LogLine is one line of a machine's output.
type LogLine struct {
	At       time.Time `json:"at"`
	Stream   string    `json:"stream"`
	Text     string    `json:"text"`
	Position string    `json:"position,omitempty"` // for LogsQuery.After
}

// Act is what the verbs about a machine have in common. Fields that a verb does
// not know are ignored.
type Act struct {
	Machine bourse.MachineID `json:"machine"`
	Nonce   string           `json:"nonce,omitempty"`    // of the machine's lease
	Signal  bourse.Signal    `json:"signal,omitempty"`   // stop, restart, signal
	Timeout bourse.Duration  `json:"timeout,omitempty"`  // stop, restart; 0 means the machine's own
	Secrets uint64           `json:"secrets,omitempty"`  // start, restart: version of the app's that it must have, at least
	AppKeys bourse.AppKeys   `json:"app_keys,omitempty"` // start, restart: open the app's secrets; empty: the broker has no keys
	Force   bool             `json:"force,omitempty"`    // destroy a machine that runs; restart with SIGKILL
	By      string           `json:"by,omitempty"`       // the name of the token that asks, for the machine's events
}

// ActReply is the machine after the verb and its state before.
type ActReply struct {
	Previous bourse.State   `json:"previous"`
	Machine  bourse.Machine `json:"machine"`
}

// UpdateRequest makes a new version of a machine.
type UpdateRequest struct {
	Machine     bourse.MachineID  `json:"machine"`
	Nonce       string            `json:"nonce,omitempty"` // of the machine's lease
	Config      bourse.Config     `json:"config"`
	Current     bourse.InstanceID `json:"current,omitempty"`     // refuse with conflict when it has another version
	SkipLaunch  bool              `json:"skip_launch,omitempty"` // the new version is not started
	Cordoned    bool              `json:"cordoned,omitempty"`    // from the new version on; otherwise as it is
	Name        string            `json:"name,omitempty"`        // refuse unless it is the machine's; so is Region
	Region      string            `json:"region,omitempty"`
	LeaseTTL    int64             `json:"lease_ttl,omitempty"` // seconds: takes or extends the lease
	LeaseOwner  string            `json:"lease_owner,omitempty"`
	Secrets     uint64            `json:"secrets,omitempty"` // version of the app's that the new version starts with, at least
	Renew       uint64            `json:"renew,omitempty"`   // that its program must have: one that has a lower one starts again
	SkipSecrets bool              `json:"skip_secrets,omitempty"`
	AppKeys     bourse.AppKeys    `json:"app_keys,omitempty"` // open the app's secrets; empty: the broker has no keys
}

// LeaseRequest takes a lease, or extends it when Nonce is the current one.
type LeaseRequest struct {
	Machine     bourse.MachineID `json:"machine"`
	Nonce       string           `json:"nonce,omitempty"`
	TTL         time.Duration    `json:"ttl"`
	Owner       string           `json:"owner,omitempty"`
	Description string           `json:"description,omitempty"`
}

// MetadataRequest changes a machine's metadata: nil or empty removes a key.
type MetadataRequest struct {
	Machine  bourse.MachineID   `json:"machine"`
	Set      map[string]*string `json:"set"`
	Replace  bool               `json:"replace,omitempty"`  // drop the keys that Set does not name
	Instance bourse.InstanceID  `json:"instance,omitempty"` // refuse with failed_precondition when it has moved on
}

// ExecRequest is a command to run next to a machine's program.
type ExecRequest struct {
	Machine bourse.MachineID `json:"machine"`
	Command []string         `json:"command"`
	Stdin   []byte           `json:"stdin,omitempty"`
	Timeout bourse.Duration  `json:"timeout,omitempty"` // default 60 s, at most 10 min; then its process group is killed
}

// ExecReply is how it ended; outputs are cut at 1 MiB each.
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

// UseRequest says that a machine is in use, or is about to be.
type UseRequest struct {
	Machine  bourse.MachineID `json:"machine"`
	Port     int              `json:"port,omitempty"`     // of a service of its; 0: what its $PORT says
	Start    bool             `json:"start,omitempty"`    // start or resume it if it does not run
	Wait     bourse.Duration  `json:"wait,omitempty"`     // for it to run and the port to accept; 0: it is only counted
	By       bourse.WorkerID  `json:"by"`                 // the proxy that asks
	Host     string           `json:"host,omitempty"`     // where the proxy is; see package samehost
	TTL      bourse.Duration  `json:"ttl"`                // counts as used for so long
	Requests int              `json:"requests,omitempty"` // of the proxy's in progress there
}

// UseReply is how a machine is reached that is in use.
type UseReply struct {
	State    bourse.State      `json:"state"` // started, if it was waited for
	Instance bourse.InstanceID `json:"instance"`
	Boot     int               `json:"boot"`              // number of its start: connections to another have ended
	Port     int               `json:"port,omitempty"`    // for TunnelRequest; may be another than the service's
	Address  string            `json:"address,omitempty"` // where who asks reaches it directly; empty: through the tunnel
	TTL      bourse.Duration   `json:"ttl"`               // it will not be stopped as idle before
	Others   int               `json:"others,omitempty"`  // requests of other proxies in progress there
}
