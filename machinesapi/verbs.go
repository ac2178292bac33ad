package machinesapi

import "github.com/bourse-dev/bourse"

// StartReply is the answer to a start.
type StartReply struct {
	PreviousState bourse.State `json:"previous_state"`
	Migrated      bool         `json:"migrated"` // never: a machine stays with its worker
	NewHost       string       `json:"new_host"`
}

// StopMachine is the optional body of a stop.
type StopMachine struct {
	ID      string          `json:"id,omitempty"` // ignored: the path has it
	Signal  bourse.Signal   `json:"signal,omitempty"`
	Timeout bourse.Duration `json:"timeout,omitempty"` // 0 means the machine's own
}

// RestartMachine is the options of a restart, in its query.
type RestartMachine struct {
	ForceStop bool // kill at once
	Signal    bourse.Signal
	Timeout   bourse.Duration // 0 means the machine's own
}

// SignalMachine is the body of a signal.
type SignalMachine struct {
	Signal bourse.Signal `json:"signal"` // a name or a number
}

// ExecMachine is the body of an exec.
type ExecMachine struct {
	Command   []string `json:"command,omitempty"`
	Cmd       string   `json:"cmd,omitempty"`     // one line instead of Command, split as a shell splits words
	Timeout   int64    `json:"timeout,omitempty"` // seconds; default 60, at most 600
	Stdin     string   `json:"stdin,omitempty"`
	Container string   `json:"container,omitempty"`
}

// ExecReply is how a command ended. What it wrote is cut at 1 MiB each.
type ExecReply struct {
	ExitCode   int    `json:"exit_code"`
	ExitSignal int    `json:"exit_signal"` // 0: none
	Stdout     string `json:"stdout"`
	Stderr     string `json:"stderr"`
}

// WaitMachine is what to wait for.
type WaitMachine struct {
	States  []string        // any of them, or "settled"; default started
	Timeout bourse.Duration // up to 60 s, the default
	Version bourse.InstanceID
	After   bourse.EventID // count only what happened after this event
}

// StateSettled means every state that a machine stays in by itself.
const StateSettled = "settled"

// WaitReply is the state that a wait ended in.
type WaitReply struct {
	OK      bool              `json:"ok"`
	State   bourse.State      `json:"state"`
	Version bourse.InstanceID `json:"version"`
	EventID bourse.EventID    `json:"event_id"` // cursor for the next wait
}

// DestroyMachine is how to destroy.
type DestroyMachine struct {
	Force bool // also a machine that runs
}
