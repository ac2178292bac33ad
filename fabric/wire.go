package fabric

import (
	"time"

	"github.com/bourse-dev/bourse"
)

// The worker's API, as method and path. Bodies are in the form of package codec,
// streams are lines of JSON; durations in query strings are Go durations, times
// RFC 3339 with nanoseconds. Every reply past
// 299 has the body [Failure].
const (
	PathQuote         = "POST /worker/quote"                          // bourse.Order → bourse.Quote
	PathClaim         = "POST /worker/claim"                          // bourse.Claim → ClaimReply
	PathClaimStream   = "POST /worker/claim/stream"                   // bourse.Claim of a task → NDJSON of ClaimPart
	PathCancel        = "POST /worker/orders/{order}/cancel"          // → bourse.Cancellation
	PathOrder         = "GET /worker/orders/{order}"                  // → bourse.Decision
	PathReserve       = "POST /worker/reserve"                        // bourse.Claim of an order for capacity → ClaimReply
	PathReservation   = "GET /worker/reservations/{reservation}"      // of a bourse.ReservationKey → []bourse.Hold
	PathExtendHolds   = "PATCH /worker/reservations/{reservation}"    // ExtendHolds → []bourse.Hold
	PathReleaseHolds  = "DELETE /worker/reservations/{reservation}"   // → {}; what it asks for later is refused
	PathMachines      = "GET /worker/machines"                        // ?app= &name= &deleted=true → []bourse.Machine
	PathMachine       = "GET /worker/machines/{machine}"              // → bourse.Machine, with its latest events
	PathStart         = "POST /worker/machines/{machine}/start"       // Act → ActReply
	PathStop          = "POST /worker/machines/{machine}/stop"        // Act → ActReply, before it has stopped
	PathRestart       = "POST /worker/machines/{machine}/restart"     // Act → ActReply, once started again
	PathDestroy       = "POST /worker/machines/{machine}/destroy"     // Act → ActReply, once gone
	PathCordon        = "POST /worker/machines/{machine}/cordon"      // Act → ActReply
	PathUncordon      = "POST /worker/machines/{machine}/uncordon"    // Act → ActReply
	PathSignal        = "POST /worker/machines/{machine}/signal"      // Act → ActReply
	PathExec          = "POST /worker/machines/{machine}/exec"        // ExecRequest → ExecReply
	PathWait          = "GET /worker/machines/{machine}/wait"         // ?state= (repeated) &timeout= &instance= &after= → WaitReply
	PathEvents        = "GET /worker/machines/{machine}/events"       // ?limit= → []bourse.Event, newest first
	PathLogs          = "GET /worker/machines/{machine}/logs"         // ?since= &tail= &follow=true → NDJSON of LogLine
	PathLease         = "POST /worker/machines/{machine}/lease"       // LeaseRequest → bourse.Lease
	PathRelease       = "POST /worker/machines/{machine}/release"     // Act → ActReply
	PathMetadata      = "PATCH /worker/machines/{machine}/metadata"   // MetadataRequest → bourse.Machine
	PathApps          = "GET /worker/apps"                            // → []bourse.App, tombstones included
	PathApp           = "PUT /worker/apps/{app}"                      // bourse.App → bourse.App: the merge with what was there
	PathExecStream    = "POST /worker/machines/{machine}/exec/stream" // full duplex: frames of stream.go both ways
	PathTunnel        = "POST /worker/machines/{machine}/tunnel"      // ?port= full duplex: bytes to and from a TCP port of the machine
	PathUsage         = "GET /worker/machines/{machine}/usage"        // → Usage
	PathVolumes       = "GET /worker/volumes"                         // ?app= &deleted=true → []bourse.Volume
	PathVolume        = "GET /worker/volumes/{volume}"                // → bourse.Volume, with its usage
	PathVolumeChange  = "PATCH /worker/volumes/{volume}"              // VolumeChange → bourse.Volume
	PathVolumeExtend  = "POST /worker/volumes/{volume}/extend"        // ExtendRequest → bourse.Volume, once it has grown
	PathVolumeDestroy = "POST /worker/volumes/{volume}/destroy"       // → bourse.Volume, once gone
	PathSnapshot      = "POST /worker/volumes/{volume}/snapshots"     // → bourse.Snapshot, once taken
	PathGrant         = "POST /worker/grants/{volume}"                // of a volume or snapshot id, GrantRequest → Grant; for brokers
	PathExport        = "GET /worker/exports/{volume}"                // ?grant= of a volume or snapshot id → volume.Manifest; for other workers
	PathChunk         = "GET /worker/exports/{volume}/chunk"          // ?n= &digest= &grant= → bytes of one chunk; for other workers
	PathExportEnd     = "DELETE /worker/exports/{volume}"             // ?grant= ends the reading of a manifest, by its id → {}; for other workers
	PathImages        = "GET /worker/images"                          // → []bourse.Image
	PathImagePull     = "POST /worker/images/pull"                    // PullRequest → NDJSON of bourse.Image: progress, at last the image without Pull
	PathImagePrune    = "POST /worker/images/prune"                   // → []bourse.Image: those removed, none of which was in use
	PathFacts         = "GET /worker/facts"                           // → bourse.Facts
	PathRuns          = "GET /worker/runs"                            // ?ended=true → []Run
	PathRunRetry      = "POST /worker/runs/{run}/retry"               // → Run
	PathRunSkip       = "POST /worker/runs/{run}/skip"                // → Run
	PathRunCancel     = "POST /worker/runs/{run}/cancel"              // → Run
)

// MaxBody bounds the body of every request, in bytes.
const MaxBody = 4 << 20

// VolumeChange changes how a volume is kept. Nil fields stay as they are.
type VolumeChange struct {
	RetentionDays  *int  `json:"retention_days,omitempty"`
	ScheduledSnaps *bool `json:"scheduled_snaps,omitempty"`
}

// ExtendRequest makes a volume larger; never smaller.
type ExtendRequest struct {
	SizeGB int64 `json:"size_gb"`
}

// PullRequest names an image to pull.
type PullRequest struct {
	Image string `json:"image"`
}

// Usage is what a machine uses, and its limits.
type Usage struct {
	At        time.Time     `json:"at"`
	CPU       time.Duration `json:"cpu"`       // since it started; -1: not accounted. So are all of these
	Throttled time.Duration `json:"throttled"` // waited for its quota
	Memory    int64         `json:"memory"`    // bytes
	PIDs      int64         `json:"pids"`
	ReadByte  int64         `json:"read_byte"`
	WriteByte int64         `json:"write_byte"`
	CPUs      float64       `json:"cpus"`       // cores in use, over the last seconds
	MayCPUs   float64       `json:"may_cpus"`   // cores that it may use; 0: no limit
	MayMemory int64         `json:"may_memory"` // bytes; 0: no limit
}

// ExtendHolds makes all that a reservation holds on a worker end so long from
// now.
type ExtendHolds struct {
	TTL bourse.Duration `json:"ttl"`
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

// Act is what the verbs on a machine have in common. Fields that a verb does
// not know are ignored.
type Act struct {
	Nonce   string          `json:"nonce,omitempty"`   // of the machine's lease
	Signal  bourse.Signal   `json:"signal,omitempty"`  // stop, restart, signal
	Timeout bourse.Duration `json:"timeout,omitempty"` // stop, restart; 0 means the machine's own
	Force   bool            `json:"force,omitempty"`   // destroy a machine that runs; restart with SIGKILL
}

// ActReply is the machine after the verb and its state before.
type ActReply struct {
	Previous bourse.State   `json:"previous"`
	Machine  bourse.Machine `json:"machine"`
}

// ExecRequest is a command to run next to a machine's program.
type ExecRequest struct {
	Command []string        `json:"command"`
	Stdin   []byte          `json:"stdin,omitempty"`
	Timeout bourse.Duration `json:"timeout,omitempty"` // default 60 s, at most 10 min; then its process group is killed
}

// ExecReply is how it ended; outputs are cut at 1 MiB each.
type ExecReply struct {
	Exit   bourse.Exit `json:"exit"`
	Stdout []byte      `json:"stdout,omitempty"`
	Stderr []byte      `json:"stderr,omitempty"`
}

// WaitReply is the machine's state when the wait ended well.
type WaitReply struct {
	State    bourse.State      `json:"state"`
	Instance bourse.InstanceID `json:"instance"`
	Event    bourse.EventID    `json:"event"`             // the latest; a cursor for the next wait
	Machine  *bourse.Machine   `json:"machine,omitempty"` // as it was when the wait ended; nil from older workers
}

// LeaseRequest takes a lease, or extends it when Nonce is the current one.
type LeaseRequest struct {
	Nonce       string        `json:"nonce,omitempty"`
	TTL         time.Duration `json:"ttl"`
	Owner       string        `json:"owner,omitempty"`
	Description string        `json:"description,omitempty"`
}

// MetadataRequest changes a machine's metadata: nil or empty removes a key.
type MetadataRequest struct {
	Set      map[string]*string `json:"set"`
	Replace  bool               `json:"replace,omitempty"`  // drop the keys that Set does not name
	Instance bourse.InstanceID  `json:"instance,omitempty"` // refuse with failed_precondition when it has moved on
}

// LogLine is one line of a machine's output.
type LogLine struct {
	At     time.Time `json:"at"`
	Stream string    `json:"stream"`
	Text   string    `json:"text"`
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
