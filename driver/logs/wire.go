package logs

import (
	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver/internal/companion"
)

// protocolVersion is what this release speaks. The hello, its answer and the
// end never change shape, so that a daemon can always replace a keeper of
// another release.
const protocolVersion = 1

// op names what a daemon asks of its keeper. Each request has a connection of
// its own, whose end gives it up.
type op string

const (
	opHello   op = "hello"   // one answer; the connection stays, and tells of the keeper's end by its own
	opKeep    op = "keep"    //
	opDone    op = "done"    //
	opWatch   op = "watch"   // a frame at once and whenever there is more in a log, until the machine is destroyed
	opDestroy op = "destroy" //
	opEnd     op = "end"     // leave everything as it is and exit
)

// request is a daemon's frame. Which fields are set depends on Op.
type request struct {
	Op       op               `json:"op"`
	Version  int              `json:"version,omitempty"` // of a hello
	Settings settings         `json:"settings,omitzero"` // of a hello
	Source   Source           `json:"source,omitzero"`
	Machine  bourse.MachineID `json:"machine,omitempty"`
}

// settings hold for all logs from a hello on.
type settings struct {
	Bytes int64 `json:"bytes"`
	Files int   `json:"files"`
}

// reply is the keeper's frame.
type reply struct {
	Error   *companion.Error `json:"error,omitempty"`
	Version int              `json:"version,omitempty"` // of a hello's answer
	PID     int              `json:"pid,omitempty"`     // likewise
	More    bool             `json:"more,omitempty"`    // another frame of this answer follows
}

// sourceID names a source: there is one for each boot.
type sourceID struct {
	machine bourse.MachineID
	boot    int
}

func (s Source) id() sourceID { return sourceID{s.Machine, s.Boot} }

// outputs returns the FIFOs by the name of their stream.
func (s Source) outputs() map[string]string {
	out := map[string]string{"stdout": s.Stdout}
	if s.Stderr != "" {
		out["stderr"] = s.Stderr
	}
	return out
}

func (s Source) validate() error {
	if err := s.Machine.Validate(); err != nil {
		return err
	}
	if s.Boot < 1 {
		return bourse.Errorf(bourse.CodeInvalid, "boot %d: they are counted from 1", s.Boot)
	}
	if s.Stdout == "" || s.Stdout == s.Stderr {
		return bourse.Errorf(bourse.CodeInvalid, "outputs %s and %s: two FIFOs, or one for a terminal", bourse.Quoted(s.Stdout), bourse.Quoted(s.Stderr))
	}
	return nil
}
