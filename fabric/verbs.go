package fabric

import (
	"net/http"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/codec"
)

// The verbs of workers are all that a server can ask of one. A new one needs a
// handler in package worker; if it is for people, a path of the public API, which
// docs/api.md describes and a command uses. Tests fail until all of that exists.

// The verbs about orders.
var (
	OrderQuote  = act[bourse.Order, bourse.Quote]("order/quote")
	OrderClaim  = act[bourse.Claim, ClaimReply]("order/claim")
	OrderStream = lines[bourse.Claim, ClaimPart]("order/stream", http.MethodPost) // a claim of a task whose answer comes in parts
	OrderCancel = act[bourse.OrderID, bourse.Cancellation]("order/cancel")        // it is not filled here, now or later; idempotent
	OrderShow   = read[bourse.OrderID, bourse.Decision]("order/show")             // not_found: it was not filled here

	OrderPull = read[bourse.OrderID, bourse.Image]("order/pull") // the image that its machine waits for; not_found: none is being pulled for it

	ReservationList    = read[struct{}, []bourse.Hold]("reservation/list")              // all that is held now
	ReservationShow    = read[bourse.ReservationKey, []bourse.Hold]("reservation/show") // not_found: nothing is held
	ReservationExtend  = act[ExtendHolds, []bourse.Hold]("reservation/extend")          // not_found: it has ended
	ReservationRelease = act[bourse.ReservationKey, struct{}]("reservation/release")    // what it asks for later is refused; idempotent
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

// The verbs about what else a worker has.
var (
	AppList = read[bourse.AppName, []bourse.App]("app/list") // of this name or, if it is empty, all; tombstones included

	VolumeList     = read[VolumesQuery, []bourse.Volume]("volume/list")
	VolumeShow     = read[bourse.VolumeID, bourse.Volume]("volume/show") // with its usage
	VolumeUpdate   = act[VolumeChange, bourse.Volume]("volume/update")
	VolumeExtend   = act[ExtendRequest, bourse.Volume]("volume/extend")             // once it has grown
	VolumeDestroy  = act[bourse.VolumeID, bourse.Volume]("volume/destroy")          // once it is gone
	VolumeSnapshot = act[bourse.VolumeID, bourse.Snapshot]("volume/snapshot")       // once it is taken
	VolumeGrant    = act[GrantRequest, string]("volume/grant")                      // lets another worker read it for a day, by the reply
	VolumeExport   = read[Export, codec.Raw]("volume/export", bourse.RoleWorker)    // a volume.Manifest
	VolumeChunk    = pipe[Chunk]("volume/chunk", http.MethodGet, bourse.RoleWorker) // its bytes; the reader verifies them
	VolumeRelease  = act[Export, struct{}]("volume/release", bourse.RoleWorker)     // the manifest is no longer read; idempotent

	ImageList    = read[struct{}, []bourse.Image]("image/list")                    // also those that are being pulled
	ImageResolve = read[ResolveRequest, bourse.ImageRef]("image/resolve")          // what its registry says a name means now
	ImagePull    = lines[PullRequest, bourse.Image]("image/pull", http.MethodPost) // its progress, at last the image without Pull
	ImagePrune   = act[struct{}, []bourse.Image]("image/prune")                    // removes those that no machine uses

	WorkerFacts   = read[struct{}, bourse.Facts]("worker/facts")
	WorkerCordon  = act[CordonRequest, bourse.Facts]("worker/cordon")             // from the reply on it takes no orders, or takes them again; idempotent
	WorkerMetrics = pipe[struct{}]("metrics", http.MethodGet, bourse.RoleScraper) // Prometheus' text; asked for by any client, without a request
	RunList       = read[RunsQuery, []Run]("run/list")
	RunRetry      = act[string, Run]("run/retry")  // a stuck run tries its step again
	RunSkip       = act[string, Run]("run/skip")   // a stuck run goes on with its next step
	RunCancel     = act[string, Run]("run/cancel") // a run ends
)

// table has the verbs in the order of their declarations. It is complete when
// the program starts.
var table []Spec

// Verbs returns all verbs.
func Verbs() []Spec { return slices.Clone(table) }

// act declares a verb that changes something. Brokers may use it, and others.
func act[Req, Rep any](name string, others ...bourse.Role) Verb[Req, Rep] {
	return Verb[Req, Rep]{declare[Req, Rep](Spec{Name: name, Method: http.MethodPost}, others)}
}

// read declares a verb that changes nothing.
func read[Req, Rep any](name string, others ...bourse.Role) Verb[Req, Rep] {
	return Verb[Req, Rep]{declare[Req, Rep](Spec{Name: name, Method: http.MethodGet}, others)}
}

func lines[Req, Line any](name, method string, others ...bourse.Role) Lines[Req, Line] {
	return Lines[Req, Line]{declare[Req, Line](Spec{Name: name, Method: method}, others)}
}

func pipe[Req any](name, method string, others ...bourse.Role) Pipe[Req] {
	return Pipe[Req]{declare[Req, struct{}](Spec{Name: name, Method: method, pipe: true}, others)}
}

func declare[Req, Rep any](s Spec, others []bourse.Role) Spec {
	s.Roles = append([]bourse.Role{bourse.RoleBroker}, others...)
	s.Request, s.Reply = func() any { return new(Req) }, func() any { return new(Rep) }
	table = append(table, s)
	return s
}
