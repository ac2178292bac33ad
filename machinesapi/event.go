package machinesapi

import (
	"strings"

	"github.com/bourse-dev/bourse"
)

// Event is one entry of a machine's history.
type Event struct {
	ID        bourse.EventID   `json:"id"`
	Type      bourse.EventType `json:"type"`
	Status    bourse.State     `json:"status"`           // the machine's state after the event
	Source    string           `json:"source"`           // the cause of the event, such as user or worker
	Timestamp int64            `json:"timestamp"`        // milliseconds since 1970
	Reason    string           `json:"reason,omitempty"` // added by Bourse: the worker's reason for the event
	Request   *EventRequest    `json:"request,omitempty"`
	Added     *EventAdded      `json:"x-bourse,omitempty"` // added by Bourse
}

// EventAdded contains Bourse's additions to an event.
type EventAdded struct {
	By string `json:"by"` // name of the token used by the user who caused the event
}

// maxTokenName is the maximum length of a token's name in an event. Longer names are truncated, because the name comes
// from the worker and is shown to people.
const maxTokenName = 64

// EventRequest contains the details of an exit event or a pull event.
type EventRequest struct {
	ExitEvent    *ExitEvent `json:"exit_event,omitempty"`
	RestartCount int        `json:"restart_count"`
	Pull         *PullEvent `json:"pull,omitempty"`
}

// ExitEvent describes how a machine's program exited.
type ExitEvent struct {
	ExitCode      int    `json:"exit_code"`       // 128 plus the signal if a signal killed the program; -1: unknown
	GuestExitCode int    `json:"guest_exit_code"` // same as ExitCode
	GuestSignal   int    `json:"guest_signal"`    // -1: no signal
	Signal        int    `json:"signal"`          // same as GuestSignal
	OOMKilled     bool   `json:"oom_killed"`
	RequestedStop bool   `json:"requested_stop"`
	Restarting    bool   `json:"restarting"`
	ExitedAt      string `json:"exited_at"` // RFC 3339; fly-go cannot decode a number here
	Error         string `json:"error,omitempty"`
}

// PullEvent contains the details of a pull event. Bourse records a pull event when a pull starts, and another when it
// ends.
type PullEvent struct {
	Image  string `json:"image"`
	Bytes  int64  `json:"bytes"`             // at the start, the number of bytes to pull; at the end, the image's size
	TookMS int64  `json:"took_ms,omitempty"` // set only when the pull ends
	Done   bool   `json:"done"`
}

// FromEvents converts events without changing their order.
func FromEvents(events []bourse.Event) []Event {
	out := make([]Event, len(events))
	for i := range events {
		out[i] = FromEvent(&events[i])
	}
	return out
}

// FromEvent converts an event. For an exit event, ExitEvent is always set, because clients
// dereference it without a check.
func FromEvent(e *bourse.Event) Event {
	out := Event{ID: e.ID, Type: e.Type, Status: e.State, Source: string(e.Source), Timestamp: e.At.UnixMilli(), Reason: e.Reason}
	if e.By != "" {
		out.Added = &EventAdded{By: strings.ToValidUTF8(e.By[:min(len(e.By), maxTokenName)], "")}
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

// ExitStatus returns an exit's code and signal as the API represents them. If a signal killed the program, the code is
// 128 plus the signal, as in a shell. Otherwise, the signal is -1.
func ExitStatus(e bourse.Exit) (code, signal int) {
	if e.Signal > 0 {
		return 128 + e.Signal, e.Signal
	}
	return e.Code, -1
}
