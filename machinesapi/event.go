package machinesapi

import (
	"strings"

	"github.com/bourse-dev/bourse"
)

// Event is one entry of a machine's history.
type Event struct {
	ID        bourse.EventID   `json:"id"`
	Type      bourse.EventType `json:"type"`
	Status    bourse.State     `json:"status"`           // after it
	Source    string           `json:"source"`           // who caused it: user or worker
	Timestamp int64            `json:"timestamp"`        // milliseconds since 1970
	Reason    string           `json:"reason,omitempty"` // Bourse's own: why its worker did this
	Request   *EventRequest    `json:"request,omitempty"`
	Added     *EventAdded      `json:"x-bourse,omitempty"` // Bourse's own
}

// EventAdded is what Bourse says of an event beside what the Machines API does.
type EventAdded struct {
	By string `json:"by"` // the name of the token with which a user caused it
}

// maxBy bounds the name of a token: it comes from the worker, and people read it.
const maxBy = 64

// EventRequest is the detail of an exit event, or of a pull event.
type EventRequest struct {
	ExitEvent    *ExitEvent `json:"exit_event,omitempty"`
	RestartCount int        `json:"restart_count"`
	Pull         *PullEvent `json:"pull,omitempty"`
}

// ExitEvent is how a machine's program ended.
type ExitEvent struct {
	ExitCode      int    `json:"exit_code"`       // 128 and the signal when one ended it; -1: unknown
	GuestExitCode int    `json:"guest_exit_code"` // the same
	GuestSignal   int    `json:"guest_signal"`    // -1: none
	Signal        int    `json:"signal"`          // the same
	OOMKilled     bool   `json:"oom_killed"`
	RequestedStop bool   `json:"requested_stop"`
	Restarting    bool   `json:"restarting"`
	ExitedAt      string `json:"exited_at"` // RFC 3339; a number would break fly-go
	Error         string `json:"error,omitempty"`
}

// PullEvent is Bourse's own: the detail of a pull event, one as the pull begins and one
// after it.
type PullEvent struct {
	Image  string `json:"image"`
	Bytes  int64  `json:"bytes"`             // to be pulled as it begins, the image's after it
	TookMS int64  `json:"took_ms,omitempty"` // after it
	Done   bool   `json:"done"`
}

// FromEvents shows events in the order in which they are given.
func FromEvents(events []bourse.Event) []Event {
	out := make([]Event, len(events))
	for i := range events {
		out[i] = FromEvent(&events[i])
	}
	return out
}

// FromEvent shows one event. Clients read the exit event of type exit without
// a check, so such an event always has one.
func FromEvent(e *bourse.Event) Event {
	out := Event{ID: e.ID, Type: e.Type, Status: e.State, Source: string(e.Source), Timestamp: e.At.UnixMilli(), Reason: e.Reason}
	if e.By != "" {
		out.Added = &EventAdded{By: strings.ToValidUTF8(e.By[:min(len(e.By), maxBy)], "")}
	}
	exit := e.Exit
	if exit == nil && e.Type == bourse.EventExit {
		exit = &bourse.ExitEvent{Exit: bourse.Exit{Code: -1, At: e.At}}
	}
	if exit != nil {
		out.Request = &EventRequest{ExitEvent: fromExit(exit), RestartCount: exit.RestartCount}
	}
	if p := e.Pull; p != nil {
		out.Request = &EventRequest{Pull: &PullEvent{Image: p.Image, Bytes: p.Bytes, TookMS: p.Took.Milliseconds(), Done: p.Done}}
	}
	return out
}

func fromExit(e *bourse.ExitEvent) *ExitEvent {
	code, signal := ExitStatus(e.Exit)
	return &ExitEvent{
		ExitCode: code, GuestExitCode: code, GuestSignal: signal, Signal: signal, OOMKilled: e.OOMKilled,
		RequestedStop: e.RequestedStop, Restarting: e.Restarting, Error: e.Error,
		ExitedAt: e.At.UTC().Format("2006-01-02T15:04:05.000Z"),
	}
}

// ExitStatus returns an exit's code and signal as the API writes them: a signal
// has the code that a shell would return, and -1 means no signal.
func ExitStatus(e bourse.Exit) (code, signal int) {
	if e.Signal > 0 {
		return 128 + e.Signal, e.Signal
	}
	return e.Code, -1
}
