package machinesapi

import "github.com/bourse-dev/bourse"

// StartReply is the reply to a request to start a machine.
type StartReply struct {
	PreviousState bourse.State `json:"previous_state"`
	Migrated      bool         `json:"migrated"` // always false, because a machine stays on its worker
	NewHost       string       `json:"new_host"`
}

// StopMachine is the optional body of a request to stop a machine.
type StopMachine struct {
	ID      string          `json:"id,omitempty"` // ignored, because the ID is in the path
	Signal  bourse.Signal   `json:"signal,omitempty"`
	Timeout bourse.Duration `json:"timeout,omitempty"` // 0: the timeout in the machine's config
}

// RestartMachine contains the query parameters of a request to restart a machine.
type RestartMachine struct {
	ForceStop bool // kill the machine immediately
	Signal    bourse.Signal
	Timeout   bourse.Duration // 0: the timeout in the machine's config
}

// SignalMachine is the body of a request to send a signal to a machine.
type SignalMachine struct {
	Signal bourse.Signal `json:"signal"` // name or number of the signal
}

// ExecMachine is the body of a request to run a command in a machine.
type ExecMachine struct {
	Command   []string `json:"command,omitempty"`
	Cmd       string   `json:"cmd,omitempty"`     // command line, split into words as a shell would; replaces Command
	Timeout   int64    `json:"timeout,omitempty"` // in seconds; default 60, at most 600
	Stdin     string   `json:"stdin,omitempty"`
	Container string   `json:"container,omitempty"`
}

// ExecReply is the result of a command. Stdout and Stderr are limited to 1 MiB each.
type ExecReply struct {
	ExitCode   int    `json:"exit_code"`
	ExitSignal int    `json:"exit_signal"` // 0: no signal
	Stdout     string `json:"stdout"`
	Stderr     string `json:"stderr"`
}

// WaitMachine contains the parameters of a request that waits for a machine.
type WaitMachine struct {
	States  []string        // wait until the machine is in any of these states, or "settled"; default started
	Timeout bourse.Duration // at most 60 s, which is also the default
	Version bourse.InstanceID
	After   bourse.EventID // ignore this event and all earlier ones
}

// StateSettled denotes all states that a machine does not leave on its own.
const StateSettled = "settled"

// WaitReply is the machine's state after a successful wait.
type WaitReply struct {
	OK      bool              `json:"ok"`
	State   bourse.State      `json:"state"`
	Version bourse.InstanceID `json:"version"`
	EventID bourse.EventID    `json:"event_id"` // the latest event; use it as WaitMachine.After in the next wait
}

// DestroyMachine specifies how to destroy a machine.
type DestroyMachine struct {
	Force bool // destroy the machine even if it is running
}
