package bourse

import (
	"net/netip"
	"slices"
	"time"
)

// State is where a machine is in its life.
type State string

// The states of the Machines API that a worker's machine can be in.
const (
	StateCreated    State = "created"    // recorded, not yet started or prepared
	StateStarting   State = "starting"   // its start is in progress
	StateStarted    State = "started"    // its program runs
	StateStopping   State = "stopping"   // asked to end
	StateStopped    State = "stopped"    // ended; keeps its disk, not its cpus and memory
	StateSuspending State = "suspending" // its program is being frozen
	StateSuspended  State = "suspended"  // its program is frozen; keeps all that it takes
	StateRestarting State = "restarting" // ended, waits for its next start
	StateReplacing  State = "replacing"  // its version ends, and the next one takes its place
	StateFailed     State = "failed"     // could not be started
	StateDestroying State = "destroying" // what it left on the host is being removed
	StateDestroyed  State = "destroyed"  // gone; its record is kept for a while
)

// transitions is the whole life of a machine: from a state to those that may
// follow it.
var transitions = map[State][]State{
	"":              {StateCreated, StateStarting}, // starting: recorded by an order that launches at once
	StateCreated:    {StateStarting, StateStopped, StateFailed, StateDestroying},
	StateStarting:   {StateStarted, StateStopping, StateSuspended, StateStopped, StateRestarting, StateFailed, StateDestroying},
	StateStarted:    {StateStopping, StateSuspending, StateStopped, StateRestarting, StateReplacing, StateFailed, StateDestroying},
	StateStopping:   {StateStopped, StateRestarting, StateDestroying},
	StateSuspending: {StateSuspended, StateStarted, StateStopping, StateStopped, StateRestarting, StateDestroying}, // started: it could not be frozen
	StateSuspended:  {StateStarting, StateStopping, StateStopped, StateReplacing, StateDestroying},                 // stopped: its program was lost
	StateStopped:    {StateStarting, StateDestroying},
	StateRestarting: {StateStarting, StateStopping, StateStopped, StateReplacing, StateFailed, StateDestroying},
	StateReplacing:  {StateStarting, StateStopped, StateFailed, StateDestroying},
	StateFailed:     {StateStarting, StateStopped, StateDestroying},
	StateDestroying: {StateDestroyed},
	StateDestroyed:  {},
}

// States lists every state in the order of a machine's life.
func States() []State {
	return []State{
		StateCreated, StateStarting, StateStarted, StateSuspending, StateSuspended, StateStopping, StateStopped,
		StateRestarting, StateReplacing, StateFailed, StateDestroying, StateDestroyed,
	}
}

// CanBecome reports whether next may follow s.
func (s State) CanBecome(next State) bool { return slices.Contains(transitions[s], next) }

// Settled reports whether s is a state that a machine stays in by itself.
func (s State) Settled() bool {
	switch s {
	case StateStarted, StateSuspended, StateStopped, StateFailed, StateDestroyed:
		return true
	case StateCreated, StateStarting, StateSuspending, StateStopping, StateRestarting, StateReplacing, StateDestroying:
		return false
	}
	return false
}

// Machine is a worker's record of one of its machines. Only that worker
// changes it; everyone else holds copies.
type Machine struct {
	ID          MachineID     `json:"id"`
	Name        string        `json:"name"`
	App         AppName       `json:"app"`
	AppID       string        `json:"app_id,omitempty"` // of the app that it belongs to; see [App.Owns]
	Worker      WorkerID      `json:"worker"`
	Region      Region        `json:"region"`
	Order       OrderID       `json:"order"`               // the order that it fills
	Placement   []byte        `json:"placement,omitempty"` // the broker's signed [Placement] of the order; nil in a cluster without certificates
	Instance    InstanceID    `json:"instance"`            // its present version
	State       State         `json:"state"`
	Config      Config        `json:"config"`
	Takes       Amounts       `json:"takes,omitempty"` // from the ledger, in its present state
	Cordoned    bool          `json:"cordoned,omitempty"`
	Secrets     uint64        `json:"secrets,omitempty"`      // version of its app's that it must have when it starts, at least
	SkipSecrets bool          `json:"skip_secrets,omitempty"` // it gets none
	Lease       *Lease        `json:"lease,omitempty"`
	Boot        Boot          `json:"boot"`
	Image       *ImageRef     `json:"image,omitempty"`     // what config.image meant when this version was made; nil for image host
	PrivateIP   netip.Addr    `json:"private_ip,omitzero"` // in its own network; zero: it uses the host's
	Network     string        `json:"network,omitempty"`   // private network that PrivateIP is of
	Checks      *CheckResults `json:"checks,omitempty"`    // of its latest start that was checked
	Devices     []string      `json:"devices,omitempty"`   // qualified CDI names of what it has of the worker's devices while it takes them
	Next        *NextVersion  `json:"next,omitempty"`      // that an update in progress will make of it
	Due         *Due          `json:"due,omitempty"`       // next start of its schedule
	CreatedAt   time.Time     `json:"created_at"`
	UpdatedAt   time.Time     `json:"updated_at"`
	LastEvents  []Event       `json:"events,omitempty"` // newest first; filled in on reading, from the worker's log
}

// NextVersion is what becomes of a machine when its present version has ended.
// Until then the machine takes as much as either.
type NextVersion struct {
	Instance    InstanceID `json:"instance"`
	Config      Config     `json:"config"`
	Image       *ImageRef  `json:"image,omitempty"` // what its image means; nil until that is known
	Takes       Amounts    `json:"takes,omitempty"` // from the ledger
	Launch      bool       `json:"launch,omitempty"`
	Cordoned    bool       `json:"cordoned,omitempty"` // the machine from then on
	Secrets     uint64     `json:"secrets,omitempty"`  // as the machine's; so is SkipSecrets
	SkipSecrets bool       `json:"skip_secrets,omitempty"`
	Renew       bool       `json:"renew,omitempty"` // its program starts again for its secrets, whatever else is the same
}

// Version is one version of a machine, with the config that it was made with.
type Version struct {
	Instance InstanceID `json:"instance"`
	Config   Config     `json:"config"`
	At       time.Time  `json:"at,omitzero"` // until when it was as it is here; zero: it is
}

// Boot is what a machine's record says of its latest start.
type Boot struct {
	Number    int         `json:"number"`              // counts starts; 0 before the first
	PID       int         `json:"pid,omitempty"`       // on the worker's host; 0 when nothing runs
	Port      int         `json:"port,omitempty"`      // what its $PORT says
	Requested bool        `json:"requested,omitempty"` // its end was asked for
	Frozen    bool        `json:"frozen,omitempty"`    // since it was suspended, until it has resumed
	Exit      *Exit       `json:"exit,omitempty"`      // how it ended
	StandsIn  MachineID   `json:"stands_in,omitempty"` // the lost machine for which its worker made this start; a caller's start makes it ""
	Restarts  []time.Time `json:"restarts,omitempty"`  // by policy, within the restart window
}

// Exit says how a machine's program ended.
type Exit struct {
	Code      int       `json:"code"`             // 0 to 255; -1 when a signal ended it or no one knows
	Signal    int       `json:"signal,omitempty"` // the signal that ended it, 0 for none
	OOMKilled bool      `json:"oom_killed,omitempty"`
	Error     string    `json:"error,omitempty"` // why there is no code: it could not be started, or was lost
	At        time.Time `json:"at"`
}

// Failed reports whether the on-failure policy starts it again.
func (e Exit) Failed() bool { return e.Code != 0 || e.Signal != 0 || e.Error != "" }

// Lease keeps everyone without its nonce from changing a machine.
type Lease struct {
	Nonce       string    `json:"nonce"`
	Owner       string    `json:"owner"`
	Description string    `json:"description,omitempty"`
	ExpiresAt   time.Time `json:"expires_at"`
}

// Expired reports whether the lease has run out by now. A nil lease has.
func (l *Lease) Expired(now time.Time) bool { return l == nil || !now.Before(l.ExpiresAt) }

// EventType names what happened to a machine, in the Machines API's words.
type EventType string

// The types of event.
const (
	EventLaunch   EventType = "launch"
	EventPrepare  EventType = "prepare" // of a machine that is not launched: created to stopped
	EventPull     EventType = "pull"    // its image is being pulled, or has been
	EventCutOff   EventType = "cut_off" // its network has gone from the host while it ran: it has none until it is restarted
	EventStart    EventType = "start"
	EventStop     EventType = "stop"
	EventSuspend  EventType = "suspend"
	EventResume   EventType = "resume" // the program goes on where it was suspended
	EventRestart  EventType = "restart"
	EventUpdate   EventType = "update" // to replacing: its version ends; to any other state: it has a new one and goes on, or no update
	EventExit     EventType = "exit"
	EventDestroy  EventType = "destroy"
	EventCordon   EventType = "cordon"
	EventUncordon EventType = "uncordon"

	EventExtend    EventType = "extend"     // its volume was full, and has grown or could not
	EventStandIn   EventType = "stand_in"   // started by its worker: a machine that it stands by for is lost
	EventStandDown EventType = "stand_down" // stopped by its worker: it is needed no more
)

// Source says who caused an event.
type Source string

// The sources of events.
const (
	SourceUser   Source = "user"
	SourceWorker Source = "worker"
	SourceClock  Source = "schedule" // the machine's own
)

// Event is one entry of a machine's history.
type Event struct {
	ID       EventID    `json:"id"`
	Type     EventType  `json:"type"`
	From     State      `json:"from,omitempty"`
	State    State      `json:"state"` // after it
	Source   Source     `json:"source"`
	Reason   string     `json:"reason,omitempty"` // why its worker did this, in words
	By       string     `json:"by,omitempty"`     // the name of the token with which a user caused it
	At       time.Time  `json:"at"`
	Instance InstanceID `json:"instance,omitempty"`
	Exit     *ExitEvent `json:"exit,omitempty"` // of type exit
	Pull     *PullEvent `json:"pull,omitempty"` // of type pull
}

// PullEvent is what a pull event adds: one as the pull begins, one after it.
type PullEvent struct {
	Image string        `json:"image"` // registry/repository[:tag]@digest
	Bytes int64         `json:"bytes"` // to be pulled as it begins, the image's size after it
	Took  time.Duration `json:"took,omitempty"`
	Done  bool          `json:"done,omitempty"`
}

// ExitEvent is what an exit event adds to the exit itself.
type ExitEvent struct {
	Exit
	RequestedStop bool `json:"requested_stop"`
	Restarting    bool `json:"restarting"`
	RestartCount  int  `json:"restart_count"`
}
