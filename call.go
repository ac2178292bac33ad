package bourse

import (
	"slices"
	"strings"
)

// Call is something that a machine's worker is asked to do with it.
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

// Answer is what becomes of a call on a machine in some state.
type Answer string

// The answers to calls.
const (
	Goes    Answer = "go"
	Already Answer = "already" // the machine is where the caller wants it: done, and nothing happens
	Gone    Answer = "gone"    // CodeNotFound
	Unable  Answer = "unable"  // CodeFailedPrecondition, with a text that clients look for parts of
)

// rule says in which states a call goes, and in which there is nothing to do. In
// all others it is refused, with the text of the state or the general one.
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

// living are all states but the last.
var living = States()[:len(States())-1]

// Calls lists every call.
func Calls() []Call {
	return []Call{
		CallStart, CallStop, CallSuspend, CallRestart, CallUpdate, CallDestroy, CallSignal, CallExec, CallUsage, CallLease, CallCordon, CallMetadata,
	}
}

// On returns what becomes of the call on a machine in state s, and the text of the
// refusal when that is [Unable].
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
