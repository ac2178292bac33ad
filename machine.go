package bourse

import (
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// State is a machine's state.
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
	StateDestroying State = "destroying" // its remains on the host are being removed
	StateDestroyed  State = "destroyed"  // removed; its record is kept temporarily
)

// transitions maps each state of a machine to the states that may follow it.
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

// Settled reports whether a machine may stay in state s indefinitely.
func (s State) Settled() bool {
	switch s {
	case StateStarted, StateSuspended, StateStopped, StateFailed, StateDestroyed:
		return true
	case StateCreated, StateStarting, StateSuspending, StateStopping, StateRestarting, StateReplacing, StateDestroying:
		return false
	}
	return false
}

// Machine is a worker's record of one of its machines. Only that worker changes it; all
// others have copies.
type Machine struct {
	ID          MachineID     `json:"id"`
	Name        string        `json:"name"`
	App         AppName       `json:"app"`
	AppID       string        `json:"app_id,omitempty"` // of the app that it belongs to; see [App.Owns]
	Worker      WorkerID      `json:"worker"`
	Region      Region        `json:"region"`
	Order       OrderID       `json:"order"`               // the order that it fills
	Placement   []byte        `json:"placement,omitempty"` // the broker's signed [Placement] of the order; nil in a cluster without certificates
	Instance    InstanceID    `json:"instance"`            // its current version
	State       State         `json:"state"`
	Config      Config        `json:"config"`
	Takes       Amounts       `json:"takes,omitempty"` // from the ledger, in its present state
	Cordoned    bool          `json:"cordoned,omitempty"`
	Secrets     uint64        `json:"secrets,omitempty"`      // lowest version of its app's secrets with which it may start
	SkipSecrets bool          `json:"skip_secrets,omitempty"` // it gets none
	Lease       *Lease        `json:"lease,omitempty"`
	Boot        Boot          `json:"boot"`
	Image       *ImageRef     `json:"image,omitempty"`     // what config.image resolved to when this version was created; nil for image host
	PrivateIP   netip.Addr    `json:"private_ip,omitzero"` // in its own network; zero: it uses the host's
	Network     string        `json:"network,omitempty"`   // private network that PrivateIP is of
	Checks      *CheckResults `json:"checks,omitempty"`    // of its latest start that was checked
	Devices     []string      `json:"devices,omitempty"`   // qualified CDI names of the worker's devices that it uses
	Next        *NextVersion  `json:"next,omitempty"`      // its version after the update in progress
	Due         *Due          `json:"due,omitempty"`       // next start of its schedule
	CreatedAt   time.Time     `json:"created_at"`
	UpdatedAt   time.Time     `json:"updated_at"`
	LastEvents  []Event       `json:"events,omitempty"` // newest first; filled in on reading, from the worker's log
}

// NextVersion is a machine's version after the update in progress. Until the update ends,
// the machine takes the larger amount of each resource.
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
	At       time.Time  `json:"at,omitzero"` // when it was replaced; zero for the current version
}

// Boot describes a machine's latest start.
type Boot struct {
	Number    int         `json:"number"`              // counts starts; 0 before the first
	PID       int         `json:"pid,omitempty"`       // on the worker's host; 0 when nothing runs
	Port      int         `json:"port,omitempty"`      // what its $PORT says
	Requested bool        `json:"requested,omitempty"` // its end was asked for
	Frozen    bool        `json:"frozen,omitempty"`    // since it was suspended, until it has resumed
	Exit      *Exit       `json:"exit,omitempty"`      // how it ended
	StandsIn  MachineID   `json:"stands_in,omitempty"` // the lost machine that it replaces; "" if a caller started it
	Restarts  []time.Time `json:"restarts,omitempty"`  // by policy, within the restart window
}

// Exit describes how a machine's program exited.
type Exit struct {
	Code      int       `json:"code"`             // 0 to 255; -1 if a signal killed it or the code is unknown
	Signal    int       `json:"signal,omitempty"` // the signal that ended it, 0 for none
	OOMKilled bool      `json:"oom_killed,omitempty"`
	Error     string    `json:"error,omitempty"` // why there is no code: it could not be started, or was lost
	At        time.Time `json:"at"`
}

// Failed reports whether the on-failure policy restarts the machine.
func (e Exit) Failed() bool { return e.Code != 0 || e.Signal != 0 || e.Error != "" }

// Lease prevents callers without its nonce from changing a machine.
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
	EventCutOff   EventType = "cut_off" // its network disappeared from the host while it ran; a restart restores it
	EventStart    EventType = "start"
	EventStop     EventType = "stop"
	EventSuspend  EventType = "suspend"
	EventResume   EventType = "resume" // its suspended program continues
	EventRestart  EventType = "restart"
	EventUpdate   EventType = "update" // to replacing: its version ends; to any other state: the update is complete, or has failed
	EventExit     EventType = "exit"
	EventDestroy  EventType = "destroy"
	EventCordon   EventType = "cordon"
	EventUncordon EventType = "uncordon"

	EventExtend    EventType = "extend"     // its volume was full, and was extended or could not be
	EventStandIn   EventType = "stand_in"   // started by its worker: a machine that it stands by for is lost
	EventStandDown EventType = "stand_down" // stopped by its worker: it is no longer needed
)

// Source is the originator of an event.
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
	Reason   string     `json:"reason,omitempty"` // the worker's reason, as text
	By       string     `json:"by,omitempty"`     // the name of the token with which a user caused it
	At       time.Time  `json:"at"`
	Instance InstanceID `json:"instance,omitempty"`
	Exit     *ExitEvent `json:"exit,omitempty"` // of type exit
	Pull     *PullEvent `json:"pull,omitempty"` // of type pull
}

// PullEvent contains the details of a pull event. One is recorded when the pull begins,
// and one when it ends.
type PullEvent struct {
	Image string        `json:"image"` // registry/repository[:tag]@digest
	Bytes int64         `json:"bytes"` // to be pulled as it begins, the image's size after it
	Took  time.Duration `json:"took,omitempty"`
	Done  bool          `json:"done,omitempty"`
}

// ExitEvent contains the details of an exit event.
type ExitEvent struct {
	Exit
	RequestedStop bool `json:"requested_stop"`
	Restarting    bool `json:"restarting"`
	RestartCount  int  `json:"restart_count"`
}

// Call is an operation on a machine.
type Call string

// The calls whose answer depends on the machine's state.
const (
	CallStart    Call = "start"
	CallStop     Call = "stop"
	CallSuspend  Call = "suspend"
	CallRestart  Call = "restart"
	CallUpdate   Call = "update"
	CallDestroy  Call = "destroy" // without force; with it, what runs is no reason to refuse
	CallSignal   Call = "signal"
	CallExec     Call = "exec"
	CallUsage    Call = "usage"
	CallLease    Call = "lease"
	CallCordon   Call = "cordon"
	CallMetadata Call = "metadata"
)

// Answer is the effect of a call on a machine in a given state.
type Answer string

// The answers to calls.
const (
	Goes    Answer = "go"
	Already Answer = "already" // the machine is already in the desired state: success without an effect
	Gone    Answer = "gone"    // CodeNotFound
	Unable  Answer = "unable"  // CodeFailedPrecondition, with a text that clients look for parts of
)

// rule defines the states in which a call is carried out, and those in which it has
// nothing to do. In all others it is refused, with the state's text or the general one.
type rule struct {
	goes, already []State
	unable        string // STATE stands for the state
	of            map[State]string
}

const stillActive = "machine still active, refusing to start"

var calls = map[Call]rule{
	CallStart: {
		goes: []State{StateStopped, StateSuspended, StateFailed}, already: []State{StateStarting, StateStarted},
		unable: "unable to start machine from current state: 'STATE'",
		of:     map[State]string{StateStopping: stillActive, StateSuspending: stillActive, StateRestarting: stillActive, StateReplacing: stillActive},
	},
	CallStop: {
		goes:    []State{StateStarting, StateStarted, StateSuspending, StateSuspended, StateRestarting, StateReplacing},
		already: []State{StateStopping, StateStopped},
		unable:  "unable to stop machine from current state: 'STATE'",
	},
	CallSuspend: {
		goes: []State{StateStarted}, already: []State{StateSuspending, StateSuspended},
		unable: "unable to suspend machine from current state: 'STATE'",
	},
	CallRestart: {goes: []State{StateStarted, StateSuspended, StateStopped, StateFailed}, unable: "unable to restart machine from current state: 'STATE'"},
	CallUpdate: {
		goes:   []State{StateStarted, StateSuspended, StateStopped, StateRestarting, StateFailed},
		unable: "unable to update machine from current state: 'STATE'",
	},
	CallDestroy:  {goes: []State{StateCreated, StateSuspended, StateStopped, StateFailed, StateDestroying}, unable: "unable to destroy machine, not currently stopped"},
	CallSignal:   {goes: []State{StateStarted}, unable: "machine is STATE, not started"},
	CallExec:     {goes: []State{StateStarted}, unable: "machine is STATE, not started"},
	CallUsage:    {goes: []State{StateStarted, StateSuspended}, unable: "machine is STATE, not started"},
	CallLease:    {goes: living},
	CallCordon:   {goes: living},
	CallMetadata: {goes: living},
}

// living contains all states except the last.
var living = States()[:len(States())-1]

// Calls lists every call.
func Calls() []Call {
	return []Call{
		CallStart, CallStop, CallSuspend, CallRestart, CallUpdate, CallDestroy, CallSignal, CallExec, CallUsage, CallLease, CallCordon, CallMetadata,
	}
}

// On returns the effect of the call on a machine in state s, and the text of the refusal
// if it is [Unable].
func (c Call) On(s State) (Answer, string) {
	r := calls[c]
	switch {
	case s == StateDestroyed:
		return Gone, ""
	case slices.Contains(r.goes, s):
		return Goes, ""
	case slices.Contains(r.already, s):
		return Already, ""
	}
	if text, ok := r.of[s]; ok {
		return Unable, text
	}
	return Unable, strings.ReplaceAll(r.unable, "STATE", string(s))
}

// CheckState is the result of a health check.
type CheckState string

// The states of checks, in the words of the Machines API.
const (
	CheckPassing  CheckState = "passing"
	CheckWarning  CheckState = "warning"  // not known yet, or the machine does not run
	CheckCritical CheckState = "critical" // the last probe failed
)

// CheckStatus is the status of one check of a machine.
type CheckStatus struct {
	Name      string     `json:"name"`
	Status    CheckState `json:"status"`
	Output    string     `json:"output"`     // what the probe found, a short text
	UpdatedAt time.Time  `json:"updated_at"` // when the status became what it is
}

// CheckResults contains the results of a machine's checks since one start.
type CheckResults struct {
	Boot    int           `json:"boot"` // [Boot.Number] of that start
	Results []CheckStatus `json:"results"`
}

// Process describes one of a machine's processes, with the kernel's counters.
type Process struct {
	PID       int64          `json:"pid"`   // as the machine's processes know it
	STime     int64          `json:"stime"` // milliseconds of processor time in the kernel
	RTime     int64          `json:"rtime"` // milliseconds since it began
	CPU       int64          `json:"cpu"`   // milliseconds of processor time, all of it
	RSS       int64          `json:"rss"`   // bytes of memory
	Command   string         `json:"command"`
	Directory string         `json:"directory"`      // it works in; "" when that is not known
	Listens   []ListenSocket `json:"listen_sockets"` // not null
}

// ListenSocket is a socket at which a process accepts connections or packets.
type ListenSocket struct {
	Proto   string `json:"proto"`   // "tcp" or "udp"
	Address string `json:"address"` // 0.0.0.0:8080, [::]:8080
}

// Backoff of restart policies: doubles from restartFirst to restartMost.
const (
	restartFirst = 100 * time.Millisecond
	restartMost  = 30 * time.Second
)

// RestartBackoff returns the delay before the n-th consecutive restart, with n from 1.
func RestartBackoff(n int) time.Duration {
	d := restartFirst
	for range n - 1 {
		if d *= 2; d >= restartMost {
			return restartMost
		}
	}
	return d
}

// Validate reports CodeInvalid unless p is a policy, or empty.
func (p RestartPolicy) Validate() error {
	switch p {
	case "", RestartNo, RestartAlways, RestartOnFailure:
		return nil
	}
	return Errorf(CodeInvalid, "invalid restart policy %s: use no, always or on-failure", Quoted(string(p)))
}

// Again reports whether a program is restarted after this exit, given the times of its
// earlier restarts; recent contains those within the restart window. r must have its
// defaults filled in.
func (r Restart) Again(exit Exit, before []time.Time) (again bool, recent []time.Time) {
	for _, at := range before {
		if exit.At.Sub(at) < RestartWindow {
			recent = append(recent, at)
		}
	}
	if len(recent) >= r.MaxRetries {
		return false, recent
	}
	switch r.Policy {
	case RestartAlways:
		return true, recent
	case RestartOnFailure:
		return exit.Failed(), recent
	case RestartNo:
		return false, recent
	}
	return false, recent
}

// Schedule is the interval at which a stopped machine is started.
type Schedule string

// The schedules of the Machines API.
const (
	Hourly  Schedule = "hourly"
	Daily   Schedule = "daily"
	Weekly  Schedule = "weekly"
	Monthly Schedule = "monthly"
)

// scheduleSpread is the time over which the starts of machines that were created together
// are spread.
const scheduleSpread = 5 * time.Minute

// Validate returns CodeInvalid for an unknown schedule. "" means none.
func (s Schedule) Validate() error {
	switch s {
	case "", Hourly, Daily, Weekly, Monthly:
		return nil
	}
	return Errorf(CodeInvalid, "invalid config.schedule %s: use hourly, daily, weekly or monthly", Quoted(string(s)))
}

// Next returns the time of a machine's next start after another time: whole periods after
// it was created, plus a delay that follows from its id. It is zero without a schedule.
func (s Schedule) Next(created time.Time, id MachineID, after time.Time) time.Time {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id)) // never fails
	base := created.UTC().Add(time.Duration(h.Sum64() % uint64(scheduleSpread)))
	switch s {
	case Hourly:
		return periodAfter(base, after, time.Hour)
	case Daily:
		return periodAfter(base, after, 24*time.Hour)
	case Weekly:
		return periodAfter(base, after, 7*24*time.Hour)
	case Monthly:
		year, month, _ := after.UTC().Date()
		for n := max(1, (year-base.Year())*12+int(month-base.Month())); ; n++ {
			if at := monthsAfter(base, n); at.After(after) {
				return at
			}
		}
	}
	return time.Time{}
}

func periodAfter(base, after time.Time, period time.Duration) time.Time {
	n := max(0, after.Sub(base)/period) + 1
	return base.Add(n * period)
}

// monthsAfter returns the same day n months later, or the last of that month.
func monthsAfter(base time.Time, n int) time.Time {
	first := base.AddDate(0, n, 1-base.Day())
	last := first.AddDate(0, 1, -1).Day()
	return first.AddDate(0, 0, min(base.Day(), last)-1)
}

// Due is the next scheduled start of a machine, as its worker has recorded it.
type Due struct {
	Every Schedule  `json:"every"`
	At    time.Time `json:"at"`
}
