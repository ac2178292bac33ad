package machine

import (
	"strconv"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

// maxReason limits the length of a program's start error in a list, in characters. "machine
// status" shows the full error.
const maxReason = 40

// stateText formats a machine's state. In parentheses, it adds how the program ended, or
// that the machine is a standby or has been promoted.
func stateText(m *machinesapi.Machine) string {
	switch asked := m.Exit == nil || m.Exit.RequestedStop; {
	case m.PromotedFor != "" && m.Exit == nil:
		return string(m.State) + " (promoted)"
	case m.State == bourse.StateStopped && m.PromotedFor == "" && asked && m.Config != nil && len(m.Config.Standbys) > 0:
		return string(m.State) + " (standby)"
	case m.Exit == nil:
		return string(m.State)
	}
	return string(m.State) + " (" + exitText(m.State, m.Exit) + ")"
}

// exitText describes how a program ended, for example "exit 0", "SIGTERM" or "failed: exit
// 1".
func exitText(state bourse.State, x *machinesapi.ExitEvent) string {
	if x.OOMKilled {
		return "out of memory"
	}
	failed := !x.RequestedStop && state == bourse.StateStopped // other states already imply whether it failed
	var how string
	switch {
	case x.Error != "":
		how = cli.Cut(strings.Join(strings.Fields(x.Error), " "), maxReason)
	case x.Signal > 0:
		how = signalName(x.Signal)
	default:
		how = "exit " + strconv.Itoa(x.ExitCode)
		failed = failed && x.ExitCode != 0
	}
	if failed {
		return "failed: " + how
	}
	return how
}

// faultSignals contains the names, by number, of the signals that indicate a program error.
// The numbers are Linux's, because machines run on Linux.
var faultSignals = map[int]string{4: "SIGILL", 7: "SIGBUS", 8: "SIGFPE", 11: "SIGSEGV", 13: "SIGPIPE"}

func signalName(n int) string {
	if name := faultSignals[n]; name != "" {
		return name
	}
	if name, err := bourse.ParseSignal(strconv.Itoa(n)); err == nil {
		return string(name)
	}
	return "signal " + strconv.Itoa(n)
}

// stateTone returns the color for a text that stateText returned.
func stateTone(text string) cli.Tone {
	state, how, _ := strings.Cut(text, " ")
	if strings.HasPrefix(how, "(failed") || how == "(out of memory)" {
		return cli.Bad
	}
	switch bourse.State(state) {
	case bourse.StateStarted:
		return cli.Good
	case bourse.StateFailed:
		return cli.Bad
	case bourse.StateSuspended, bourse.StateStopped, bourse.StateDestroyed:
		return cli.Muted
	case bourse.StateCreated, bourse.StateStarting, bourse.StateSuspending, bourse.StateStopping, bourse.StateRestarting, bourse.StateReplacing, bourse.StateDestroying:
		return cli.InTransition
	}
	return cli.Plain
}
