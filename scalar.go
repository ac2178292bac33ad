package bourse

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Duration is a time.Duration that JSON writes as a Go string ("1m30s") and
// reads from a string or a number of nanoseconds, as clients of the Machines
// API send both.
type Duration time.Duration

// MarshalJSON writes the Go form.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// UnmarshalJSON reads a Go duration string or nanoseconds.
func (d *Duration) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) == nil {
		if s == "" {
			*d = 0
			return nil
		}
		v, err := time.ParseDuration(s)
		if err != nil {
			return Errorf(CodeInvalid, "invalid duration %s: use 15s or 1m30s", Quoted(s))
		}
		*d = Duration(v)
		return nil
	}
	var n int64
	if err := json.Unmarshal(b, &n); err != nil {
		return Errorf(CodeInvalid, "invalid duration %s: use 15s or a number of nanoseconds", Quoted(string(b)))
	}
	*d = Duration(n)
	return nil
}

// Signal is a signal by its name, "SIGTERM". JSON reads a number too.
type Signal string

// signalNumbers holds the signals that may be sent to a machine, by their
// numbers on Linux.
var signalNumbers = map[Signal]int{
	"SIGHUP": 1, "SIGINT": 2, "SIGQUIT": 3, "SIGABRT": 6, "SIGKILL": 9, "SIGUSR1": 10, "SIGUSR2": 12,
	"SIGALRM": 14, "SIGTERM": 15, "SIGCONT": 18, "SIGSTOP": 19, "SIGTSTP": 20, "SIGWINCH": 28,
}

// ParseSignal reads "SIGTERM", "term" or "15".
func ParseSignal(s string) (Signal, error) {
	name := Signal(strings.ToUpper(s))
	if n, err := strconv.Atoi(s); err == nil {
		for signal, number := range signalNumbers {
			if number == n {
				return signal, nil
			}
		}
	}
	if !strings.HasPrefix(string(name), "SIG") {
		name = "SIG" + name
	}
	return name, name.Validate()
}

// Validate reports CodeInvalid unless s is a known signal's name.
func (s Signal) Validate() error {
	if _, ok := signalNumbers[s]; !ok {
		return Errorf(CodeInvalid, "invalid signal %s: use a name such as SIGTERM", Quoted(string(s)))
	}
	return nil
}

// Number returns the signal's number on Linux, 0 for an unknown one.
func (s Signal) Number() int { return signalNumbers[s] }

// UnmarshalJSON reads a name or a number.
func (s *Signal) UnmarshalJSON(b []byte) error {
	var text string
	if json.Unmarshal(b, &text) != nil {
		var n int
		if err := json.Unmarshal(b, &n); err != nil {
			return Errorf(CodeInvalid, "invalid signal %s: use a name or a number", Quoted(string(b)))
		}
		text = strconv.Itoa(n)
	}
	if text == "" {
		*s = ""
		return nil
	}
	v, err := ParseSignal(text)
	if err != nil {
		return err
	}
	*s = v
	return nil
}

// Requirement is what an order asks of a worker beyond its size: a label's
// value, or a number of some countable.
type Requirement struct {
	Label string // set when it is text
	Count int64  // set when it is a number; 1 or more
}

// MarshalJSON writes the text or the number.
func (r Requirement) MarshalJSON() ([]byte, error) {
	if r.Count != 0 {
		return json.Marshal(r.Count)
	}
	return json.Marshal(r.Label)
}

// UnmarshalJSON reads a string or a whole number of at least 1.
func (r *Requirement) UnmarshalJSON(b []byte) error {
	*r = Requirement{}
	if string(b) != "null" && json.Unmarshal(b, &r.Label) == nil {
		return nil
	}
	if err := json.Unmarshal(b, &r.Count); err != nil || r.Count < 1 || r.Count > MaxAmount {
		return Errorf(CodeInvalid, "invalid requirement %s: use a text or a whole number from 1 to %d", Quoted(string(b)), int64(MaxAmount))
	}
	return nil
}

// String shows the requirement as a person wrote it.
func (r Requirement) String() string {
	if r.Count != 0 {
		return strconv.FormatInt(r.Count, 10)
	}
	return r.Label
}

// Requirements are asked of a worker by name: text must equal the worker's
// label of that name, a number is taken from its countable of that name, and
// a name the worker does not know is refused.
type Requirements map[string]Requirement

// LabelWorker is the label that each worker has, whatever its operator says: its own name. An
// order that requires it is for that worker or for none.
const LabelWorker = "worker"

// On returns r with the requirement that the worker is this one.
func (r Requirements) On(worker WorkerID) Requirements {
	out := maps.Clone(r)
	if out == nil {
		out = Requirements{}
	}
	out[LabelWorker] = Requirement{Label: string(worker)}
	return out
}

// Validate reports CodeInvalid for names or values that no worker can have.
func (r Requirements) Validate() error {
	if len(r) > maxConfigEntries {
		return Errorf(CodeInvalid, "invalid config.requirements: %d entries, at most %d", len(r), maxConfigEntries)
	}
	for name, v := range r {
		if err := ValidateRequirementName(name); err != nil {
			return err
		}
		switch {
		case len(v.Label) > 255:
			return Errorf(CodeInvalid, "invalid config.requirements.%s: %d bytes, at most 255", name, len(v.Label))
		case v.Count < 0 || v.Count > MaxAmount || v.Count != 0 && v.Label != "" || !utf8.ValidString(v.Label):
			return Errorf(CodeInvalid, "invalid config.requirements.%s: use a text or a whole number from 1 to %d", name, int64(MaxAmount))
		}
	}
	return nil
}

// ValidateRequirementName reports CodeInvalid unless s can name a label or a
// countable: parts as in an app name, joined by dots.
func ValidateRequirementName(s string) error {
	for part := range strings.SplitSeq(s, ".") {
		if !isLabel(part) || len(s) > 128 {
			return Errorf(CodeInvalid, "invalid requirement name %s: use a-z, 0-9, \"-\" and dots", Quoted(s))
		}
	}
	return nil
}

var _ fmt.Stringer = Requirement{}
