package machinesapi

import "github.com/bourse-dev/bourse"

// StartReply is the reply to a start.
type StartReply struct {
	PreviousState bourse.State `json:"previous_state"`
	Migrated      bool         `json:"migrated"` // always false: a machine stays on its worker
	NewHost       string       `json:"new_host"`
}

// StopMachine is the optional body of a stop.
type StopMachine struct {
	ID      string          `json:"id,omitempty"` // ignored: the ID is in the path
	Signal  bourse.Signal   `json:"signal,omitempty"`
	Timeout bourse.Duration `json:"timeout,omitempty"` // 0: the machine's own
}

// RestartMachine contains the query parameters of a restart.
type RestartMachine struct {
	ForceStop bool // kill the machine at once
	Signal    bourse.Signal
	Timeout   bourse.Duration // 0: the machine's own
}

// SignalMachine is the body of a signal.
type SignalMachine struct {
	Signal bourse.Signal `json:"signal"` // a name or a number
}

// ExecMachine is the body of an exec.
type ExecMachine struct {
	Command   []string `json:"command,omitempty"`
	Cmd       string   `json:"cmd,omitempty"`     // command line to split into words like a shell, instead of Command
	Timeout   int64    `json:"timeout,omitempty"` // seconds; default 60, at most 600
	Stdin     string   `json:"stdin,omitempty"`
	Container string   `json:"container,omitempty"`
}

// ExecReply is the result of a command. Stdout and Stderr are each limited to 1 MiB.
type ExecReply struct {
	ExitCode   int    `json:"exit_code"`
	ExitSignal int    `json:"exit_signal"` // 0: none
	Stdout     string `json:"stdout"`
	Stderr     string `json:"stderr"`
}

// WaitMachine specifies what to wait for.
type WaitMachine struct {
	States  []string        // any of these, or "settled"; default started
	Timeout bourse.Duration // up to 60 s, the default
	Version bourse.InstanceID
	After   bourse.EventID // ignore everything up to this event
}

// StateSettled stands for all states that a machine does not leave on its own.
const StateSettled = "settled"

// WaitReply is the state after a successful wait.
type WaitReply struct {
	OK      bool              `json:"ok"`
	State   bourse.State      `json:"state"`
	Version bourse.InstanceID `json:"version"`
	EventID bourse.EventID    `json:"event_id"` // cursor for the next wait
}

// DestroyMachine specifies how to destroy a machine.
type DestroyMachine struct {
	Force bool // even if it is running
}
