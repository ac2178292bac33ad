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

// Machine states, as defined by the Machines API.
const (
	StateCreated    State = "created"    // recorded, but not yet started or prepared
	StateStarting   State = "starting"   // it is being started
	StateStarted    State = "started"    // its program is running
	StateStopping   State = "stopping"   // its program is being stopped
	StateStopped    State = "stopped"    // not running; it still takes its disk space, but no CPUs or memory
	StateSuspending State = "suspending" // its program is being frozen
	StateSuspended  State = "suspended"  // its program is frozen; it still takes all of its resources
	StateRestarting State = "restarting" // its program has exited, and will be started again
	StateReplacing  State = "replacing"  // its current version is being stopped, and will be replaced by the next one
	StateFailed     State = "failed"     // could not be started
	StateDestroying State = "destroying" // its remains on the host are being removed
	StateDestroyed  State = "destroyed"  // removed, but its record is kept temporarily
)

// transitions maps each state of a machine to the states that may follow it.
var transitions = map[State][]State{
	"":              {StateCreated, StateStarting}, // starting: an order that launches the machine immediately
	StateCreated:    {StateStarting, StateStopped, StateFailed, StateDestroying},
	StateStarting:   {StateStarted, StateStopping, StateSuspended, StateStopped, StateRestarting, StateFailed, StateDestroying},
	StateStarted:    {StateStopping, StateSuspending, StateStopped, StateRestarting, StateReplacing, StateFailed, StateDestroying},
	StateStopping:   {StateStopped, StateRestarting, StateDestroying},
	StateSuspending: {StateSuspended, StateStarted, StateStopping, StateStopped, StateRestarting, StateDestroying}, // started: the machine could not be frozen
	StateSuspended:  {StateStarting, StateStopping, StateStopped, StateReplacing, StateDestroying},                 // stopped: the machine's program was lost
	StateStopped:    {StateStarting, StateDestroying},
	StateRestarting: {StateStarting, StateStopping, StateStopped, StateReplacing, StateFailed, StateDestroying},
	StateReplacing:  {StateStarting, StateStopped, StateFailed, StateDestroying},
	StateFailed:     {StateStarting, StateStopped, StateDestroying},
	StateDestroying: {StateDestroyed},
	StateDestroyed:  {},
}

// States returns all states, roughly in the order of a machine's life.
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

// Machine is a worker's record of one of its machines. Only that worker changes the record. All
// other servers have copies.
type Machine struct {
	ID          MachineID     `json:"id"`
	Name        string        `json:"name"`
	App         AppName       `json:"app"`
	AppID       string        `json:"app_id,omitempty"` // ID of the machine's app; see [App.Owns]
	Worker      WorkerID      `json:"worker"`
	Region      Region        `json:"region"`
	Order       OrderID       `json:"order"`               // the order that the machine fills
	Placement   []byte        `json:"placement,omitempty"` // the order's [Placement], signed by the broker; nil in a cluster without certificates
	Instance    InstanceID    `json:"instance"`            // the machine's current version
	State       State         `json:"state"`
	Config      Config        `json:"config"`
	Takes       Amounts       `json:"takes,omitempty"` // resources that the machine takes in its present state, from the worker's ledger
	Cordoned    bool          `json:"cordoned,omitempty"`
	Secrets     uint64        `json:"secrets,omitempty"`      // minimum version of the app's secrets that the machine needs to start
	SkipSecrets bool          `json:"skip_secrets,omitempty"` // the machine receives no secrets
	Lease       *Lease        `json:"lease,omitempty"`
	Boot        Boot          `json:"boot"`
	Image       *ImageRef     `json:"image,omitempty"`     // the image to which config.image was resolved for this version; nil for image host
	PrivateIP   netip.Addr    `json:"private_ip,omitzero"` // address in the private network; zero: the machine uses the host's addresses
	Network     string        `json:"network,omitempty"`   // private network of PrivateIP
	Checks      *CheckResults `json:"checks,omitempty"`    // results of the checks since the latest start for which checks ran
	Devices     []string      `json:"devices,omitempty"`   // qualified CDI names of the worker's devices that the machine uses
	Next        *NextVersion  `json:"next,omitempty"`      // the next version, while an update is in progress
	Due         *Due          `json:"due,omitempty"`       // the next start according to the schedule
	CreatedAt   time.Time     `json:"created_at"`
	UpdatedAt   time.Time     `json:"updated_at"`
	LastEvents  []Event       `json:"events,omitempty"` // newest first; added from the worker's log when the record is read
}

// NextVersion is the version that a machine will have after an update that is in progress. Until
// the update ends, the ledger counts the larger of the two versions' amounts of each resource.
type NextVersion struct {
	Instance    InstanceID `json:"instance"`
	Config      Config     `json:"config"`
	Image       *ImageRef  `json:"image,omitempty"` // the image to which the config's image was resolved; nil until that is known
	Takes       Amounts    `json:"takes,omitempty"` // resources that the version takes, from the worker's ledger
	Launch      bool       `json:"launch,omitempty"`
	Cordoned    bool       `json:"cordoned,omitempty"` // the machine is cordoned once it has this version
	Secrets     uint64     `json:"secrets,omitempty"`  // like Machine.Secrets; SkipSecrets is like Machine.SkipSecrets
	SkipSecrets bool       `json:"skip_secrets,omitempty"`
	Renew       bool       `json:"renew,omitempty"` // restart the program to update its secrets, even if nothing else changes
}

// Version is one version of a machine, with its config.
type Version struct {
	Instance InstanceID `json:"instance"`
	Config   Config     `json:"config"`
	At       time.Time  `json:"at,omitzero"` // when the next version replaced this one; zero for the current version
}

// Boot describes a machine's latest start.
type Boot struct {
	Number      int         `json:"number"`                 // number of the start; 0 before the first one
	PID         int         `json:"pid,omitempty"`          // process ID on the worker's host; 0 if no process is running
	Port        int         `json:"port,omitempty"`         // value of the variable PORT in the environment
	Requested   bool        `json:"requested,omitempty"`    // the program was asked to exit
	Frozen      bool        `json:"frozen,omitempty"`       // the machine was suspended and has not been resumed
	Exit        *Exit       `json:"exit,omitempty"`         // how the program exited; nil: it has not exited
	PromotedFor MachineID   `json:"promoted_for,omitempty"` // the lost machine that this standby replaces; "" if the machine was started for another reason
	Restarts    []time.Time `json:"restarts,omitempty"`     // times of restarts by the restart policy, within the restart window
}

// Exit describes how a machine's program exited.
type Exit struct {
	Code      int       `json:"code"`             // 0 to 255; -1 if a signal killed the program or the code is unknown
	Signal    int       `json:"signal,omitempty"` // signal that killed the program; 0: none
	OOMKilled bool      `json:"oom_killed,omitempty"`
	Error     string    `json:"error,omitempty"` // why the code is unknown: the program could not be started, or was lost
	At        time.Time `json:"at"`
}

// Failed reports whether the program failed, so that the policy on-failure restarts the machine.
func (e Exit) Failed() bool { return e.Code != 0 || e.Signal != 0 || e.Error != "" }

// Lease prevents callers that do not have its nonce from changing a machine.
type Lease struct {
	Nonce       string    `json:"nonce"`
	Owner       string    `json:"owner"`
	Description string    `json:"description,omitempty"`
	ExpiresAt   time.Time `json:"expires_at"`
}

// Expired reports whether the lease has expired at the time now. It returns true if l is nil.
func (l *Lease) Expired(now time.Time) bool { return l == nil || !now.Before(l.ExpiresAt) }

// EventType identifies what happened to a machine, as in the Machines API.
type EventType string

// Types of events.
const (
	EventLaunch   EventType = "launch"
	EventPrepare  EventType = "prepare" // a machine created without being launched was prepared: created to stopped
	EventPull     EventType = "pull"    // the machine's image is being pulled, or was pulled
	EventCutOff   EventType = "cut_off" // the network of the running machine disappeared from the host; a restart restores it
	EventStart    EventType = "start"
	EventStop     EventType = "stop"
	EventSuspend  EventType = "suspend"
	EventResume   EventType = "resume" // the suspended program continues
	EventRestart  EventType = "restart"
	EventUpdate   EventType = "update" // if the state is replacing, the current version is being stopped; otherwise, the update is complete or has failed
	EventExit     EventType = "exit"
	EventDestroy  EventType = "destroy"
	EventCordon   EventType = "cordon"
	EventUncordon EventType = "uncordon"

	EventExtend  EventType = "extend"  // the machine's volume was full, and was extended or could not be extended
	EventPromote EventType = "promote" // the worker has started the standby, because a primary machine is lost
	EventDemote  EventType = "demote"  // the worker has stopped the standby, because it is no longer needed
)

// Source identifies who or what caused an event.
type Source string

// Sources of events.
const (
	SourceUser   Source = "user"
	SourceWorker Source = "worker"
	SourceClock  Source = "schedule" // the machine's schedule
)

// Event is one entry of a machine's history.
type Event struct {
	ID       EventID    `json:"id"`
	Type     EventType  `json:"type"`
	From     State      `json:"from,omitempty"`
	State    State      `json:"state"` // state of the machine after the event
	Source   Source     `json:"source"`
	Reason   string     `json:"reason,omitempty"` // the worker's reason, as text
	By       string     `json:"by,omitempty"`     // name of the token used by the user who caused the event
	At       time.Time  `json:"at"`
	Instance InstanceID `json:"instance,omitempty"`
	Exit     *ExitEvent `json:"exit,omitempty"` // details of an event of type exit
	Pull     *PullEvent `json:"pull,omitempty"` // details of an event of type pull
}

// PullEvent contains the details of a pull event. There is one pull event when the pull begins, and
// one when it ends.
type PullEvent struct {
	Image string        `json:"image"` // registry/repository[:tag]@digest
	Bytes int64         `json:"bytes"` // when the pull begins, the number of bytes to pull; when it ends, the size of the image
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

// Calls whose result depends on the machine's state.
const (
	CallStart    Call = "start"
	CallStop     Call = "stop"
	CallSuspend  Call = "suspend"
	CallRestart  Call = "restart"
	CallUpdate   Call = "update"
	CallDestroy  Call = "destroy" // without force; a destroy with force does not depend on whether the machine is running
	CallSignal   Call = "signal"
	CallExec     Call = "exec"
	CallUsage    Call = "usage"
	CallLease    Call = "lease"
	CallCordon   Call = "cordon"
	CallMetadata Call = "metadata"
)

// CallResult is the effect of a call on a machine in a given state.
type CallResult string

// Results of calls.
const (
	CallAllowed  CallResult = "go"
	CallNoChange CallResult = "already" // success without an effect, because the machine is already in the desired state
	CallNotFound CallResult = "gone"    // CodeNotFound
	CallRefused  CallResult = "unable"  // CodeFailedPrecondition, with a text that clients search for
)

// callRule defines the states in which a call is carried out, and those in which it succeeds
// without an effect. In all other states except StateDestroyed, the call is refused, either with a
// text for that state or with the general text.
type callRule struct {
	allowed, noChange []State
	refusal           string // general text of a refusal, in which STATE is replaced by the machine's state
	inState           map[State]string
}

const stillActive = "machine still active, refusing to start"

var calls = map[Call]callRule{
	CallStart: {
		allowed: []State{StateStopped, StateSuspended, StateFailed}, noChange: []State{StateStarting, StateStarted},
		refusal: "unable to start machine from current state: 'STATE'",
		inState: map[State]string{StateStopping: stillActive, StateSuspending: stillActive, StateRestarting: stillActive, StateReplacing: stillActive},
	},
	CallStop: {
		allowed:  []State{StateStarting, StateStarted, StateSuspending, StateSuspended, StateRestarting, StateReplacing},
		noChange: []State{StateStopping, StateStopped},
		refusal:  "unable to stop machine from current state: 'STATE'",
	},
	CallSuspend: {
		allowed: []State{StateStarted}, noChange: []State{StateSuspending, StateSuspended},
		refusal: "unable to suspend machine from current state: 'STATE'",
	},
	CallRestart: {allowed: []State{StateStarted, StateSuspended, StateStopped, StateFailed}, refusal: "unable to restart machine from current state: 'STATE'"},
	CallUpdate: {
		allowed: []State{StateStarted, StateSuspended, StateStopped, StateRestarting, StateFailed},
		refusal: "unable to update machine from current state: 'STATE'",
	},
	CallDestroy:  {allowed: []State{StateCreated, StateSuspended, StateStopped, StateFailed, StateDestroying}, refusal: "unable to destroy machine, not currently stopped"},
	CallSignal:   {allowed: []State{StateStarted}, refusal: "machine is STATE, not started"},
	CallExec:     {allowed: []State{StateStarted}, refusal: "machine is STATE, not started"},
	CallUsage:    {allowed: []State{StateStarted, StateSuspended}, refusal: "machine is STATE, not started"},
	CallLease:    {allowed: liveStates},
	CallCordon:   {allowed: liveStates},
	CallMetadata: {allowed: liveStates},
}

// liveStates contains all states except StateDestroyed, which is the last one.
var liveStates = States()[:len(States())-1]

// Calls returns all calls.
func Calls() []Call {
	return []Call{
		CallStart, CallStop, CallSuspend, CallRestart, CallUpdate, CallDestroy, CallSignal, CallExec, CallUsage, CallLease, CallCordon, CallMetadata,
	}
}

// On returns the effect of the call on a machine in state s. If the effect is [CallRefused], it also
// returns the text of the refusal.
func (c Call) On(s State) (CallResult, string) {
	r := calls[c]
	switch {
	case s == StateDestroyed:
		return CallNotFound, ""
	case slices.Contains(r.allowed, s):
		return CallAllowed, ""
	case slices.Contains(r.noChange, s):
		return CallNoChange, ""
	}
	if text, ok := r.inState[s]; ok {
		return CallRefused, text
	}
	return CallRefused, strings.ReplaceAll(r.refusal, "STATE", string(s))
}

// CheckState is the result of a health check.
type CheckState string

// Results of checks, named as in the Machines API.
const (
	CheckPassing  CheckState = "passing"
	CheckWarning  CheckState = "warning"  // the result is not known yet, or the machine is not running
	CheckCritical CheckState = "critical" // the last probe failed
)

// CheckStatus is the status of one check of a machine.
type CheckStatus struct {
	Name      string     `json:"name"`
	Status    CheckState `json:"status"`
	Output    string     `json:"output"`     // short text about the result of the probe
	UpdatedAt time.Time  `json:"updated_at"` // when the status last changed
}

// CheckResults contains the results of a machine's checks since the start that Boot identifies.
type CheckResults struct {
	Boot    int           `json:"boot"` // number of that start; see [Boot.Number]
	Results []CheckStatus `json:"results"`
}

// Process describes a process of a machine, with counters from the kernel.
type Process struct {
	PID       int64          `json:"pid"`   // process ID as processes in the machine see it
	STime     int64          `json:"stime"` // processor time in the kernel, in milliseconds
	RTime     int64          `json:"rtime"` // time since the process began, in milliseconds
	CPU       int64          `json:"cpu"`   // processor time in total, in milliseconds
	RSS       int64          `json:"rss"`   // memory in bytes
	Command   string         `json:"command"`
	Directory string         `json:"directory"`      // working directory; "": unknown
	Listens   []ListenSocket `json:"listen_sockets"` // never null
}

// ListenSocket is a socket on which a process accepts connections or packets.
type ListenSocket struct {
	Proto   string `json:"proto"`   // "tcp" or "udp"
	Address string `json:"address"` // such as 0.0.0.0:8080 or [::]:8080
}

// Limits of the delay before a restart by a restart policy. The delay doubles with each restart,
// from minRestartDelay to maxRestartDelay.
const (
	minRestartDelay = 100 * time.Millisecond
	maxRestartDelay = 30 * time.Second
)

// RestartBackoff returns the delay before the n-th consecutive restart. The first restart has n =
// 1.
func RestartBackoff(n int) time.Duration {
	d := minRestartDelay
	for range n - 1 {
		if d *= 2; d >= maxRestartDelay {
			return maxRestartDelay
		}
	}
	return d
}

// Validate returns CodeInvalid unless p is empty or a known policy.
func (p RestartPolicy) Validate() error {
	switch p {
	case "", RestartNo, RestartAlways, RestartOnFailure:
		return nil
	}
	return Errorf(CodeInvalid, "invalid restart policy %s: use no, always or on-failure", Quoted(string(p)))
}

// ShouldRestart reports whether a program must be restarted after it has exited. earlier contains
// the times of the program's earlier restarts; recent contains those within the restart window. The
// fields of r must have their defaults filled in.
func (r Restart) ShouldRestart(exit Exit, earlier []time.Time) (again bool, recent []time.Time) {
	for _, at := range earlier {
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

// Schedule determines how often a stopped machine is started.
type Schedule string

// Schedules of the Machines API.
const (
	Hourly  Schedule = "hourly"
	Daily   Schedule = "daily"
	Weekly  Schedule = "weekly"
	Monthly Schedule = "monthly"
)

// scheduleSpread is the length of the interval over which scheduled starts are spread if several
// machines were created at the same time.
const scheduleSpread = 5 * time.Minute

// Validate returns CodeInvalid if the schedule is unknown. "" means that there is no schedule.
func (s Schedule) Validate() error {
	switch s {
	case "", Hourly, Daily, Weekly, Monthly:
		return nil
	}
	return Errorf(CodeInvalid, "invalid config.schedule %s: use hourly, daily, weekly or monthly", Quoted(string(s)))
}

// Next returns the time of the machine's first scheduled start after the given time. The machine
// starts at the end of each period since its creation, plus a delay that depends on the machine's
// ID. If there is no schedule, Next returns the zero time.
func (s Schedule) Next(created time.Time, id MachineID, after time.Time) time.Time {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id)) // writing to a hash never fails
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

// monthsAfter returns the time that is n months later than base. If the resulting month is too
// short for base's day, it returns the last day of that month.
func monthsAfter(base time.Time, n int) time.Time {
	first := base.AddDate(0, n, 1-base.Day())
	last := first.AddDate(0, 1, -1).Day()
	return first.AddDate(0, 0, min(base.Day(), last)-1)
}

// Due describes the next scheduled start of a machine, as the machine's worker has recorded it.
type Due struct {
	Every Schedule  `json:"every"`
	At    time.Time `json:"at"`
}
