package fabric

import (
	"time"

	"github.com/bourse-dev/bourse"
)

// MaxBody bounds the body of every request, in bytes.
const MaxBody = 4 << 20

// VolumeChange changes how a volume is kept. Nil fields stay as they are.
type VolumeChange struct {
	Volume         bourse.VolumeID `json:"volume"`
	RetentionDays  *int            `json:"retention_days,omitempty"`
	ScheduledSnaps *bool           `json:"scheduled_snaps,omitempty"`
}

// ExtendRequest makes a volume larger; never smaller.
type ExtendRequest struct {
	Volume bourse.VolumeID `json:"volume"`
	SizeGB int64           `json:"size_gb"`
}

// GrantRequest asks a worker to let another one read a volume or snapshot.
type GrantRequest struct {
	ID  string          `json:"id"` // of the volume or snapshot
	To  bourse.WorkerID `json:"to"`
	App bourse.App      `json:"app"` // whose it must be
}

// Export is a volume or snapshot that another worker reads, or a manifest of it,
// and the grant to do so.
type Export struct {
	ID    string `json:"id"`
	Grant string `json:"grant"`
}

// Chunk is one chunk of a manifest.
type Chunk struct {
	Of Export `json:"of"`
	N  int    `json:"n"`
}

// PullRequest names an image to pull.
type PullRequest struct {
	Image string `json:"image"`
}

// ResolveRequest names an image, and the organisation to which its registry is to
// show it.
type ResolveRequest struct {
	Image string `json:"image"`
	Org   string `json:"org,omitempty"`
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

// ExtendHolds makes all that a reservation holds on a worker end so long from
// now.
type ExtendHolds struct {
	Reservation bourse.ReservationKey `json:"reservation"`
	TTL         bourse.Duration       `json:"ttl"`
}

// CordonRequest has a worker refuse new orders, or take them again.
type CordonRequest struct {
	Cordon bool   `json:"cordon"`
	By     string `json:"by,omitempty"` // the name of the token that asks
}

// ClaimReply has either a fill or a refusal.
type ClaimReply struct {
	Fill    *bourse.Fill    `json:"fill,omitempty"`
	Refusal *bourse.Refusal `json:"refusal,omitempty"`
}

// ClaimPart is one line of a claim's reply that streams. The last one has a
// reply or a failure; an empty one means that the task was recorded.
type ClaimPart struct {
	Output  []byte      `json:"output,omitempty"` // of the answer, as it comes
	Reply   *ClaimReply `json:"reply,omitempty"`
	Failure *Failure    `json:"failure,omitempty"`
}

// Act is what the verbs about a machine have in common. Fields that a verb does
// not know are ignored.
type Act struct {
	Machine bourse.MachineID `json:"machine"`
	Nonce   string           `json:"nonce,omitempty"`   // of the machine's lease
	Signal  bourse.Signal    `json:"signal,omitempty"`  // stop, restart, signal
	Timeout bourse.Duration  `json:"timeout,omitempty"` // stop, restart; 0 means the machine's own
	Secrets uint64           `json:"secrets,omitempty"` // start, restart: version of the app's that it must have, at least
	Force   bool             `json:"force,omitempty"`   // destroy a machine that runs; restart with SIGKILL
	By      string           `json:"by,omitempty"`      // the name of the token that asks, for the machine's events
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
}

// ActReply is the machine after the verb and its state before.
type ActReply struct {
	Previous bourse.State   `json:"previous"`
	Machine  bourse.Machine `json:"machine"`
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

// WaitReply is the machine's state when the wait ended well.
type WaitReply struct {
	State    bourse.State      `json:"state"`
	Instance bourse.InstanceID `json:"instance"`
	Event    bourse.EventID    `json:"event"`             // the latest; a cursor for the next wait
	Machine  *bourse.Machine   `json:"machine,omitempty"` // as it was when the wait ended
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

// LogLine is one line of a machine's output.
type LogLine struct {
	At       time.Time `json:"at"`
	Stream   string    `json:"stream"`
	Text     string    `json:"text"`
	Position string    `json:"position,omitempty"` // for LogsQuery.After
}

// Run is a worker's durable run, for people who ask what it is doing.
type Run struct {
	ID         string    `json:"id"`
	Definition string    `json:"definition"`
	Resource   string    `json:"resource"`
	Status     string    `json:"status"`
	Step       string    `json:"step,omitempty"`
	Attempt    int       `json:"attempt,omitempty"`
	NotBefore  time.Time `json:"not_before,omitzero"`
	Error      string    `json:"error,omitempty"`
	CreatedAt  time.Time `json:"created_at"`
	UpdatedAt  time.Time `json:"updated_at"`
}

// Failure is the body of every reply that is an error.
type Failure struct {
	Code    bourse.Code `json:"code"`
	Message string      `json:"message"`
}
