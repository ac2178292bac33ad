package logs

import (
	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/companion"
)

// protocolVersion is the version of this release's protocol. The hello, its answer and the end request are the same in
// all versions, so that a daemon can always replace a keeper from another release.
const protocolVersion = 1

// op is the operation of a request. Each request has its own connection, and closing it cancels the request.
type op string

const (
	opHello   op = "hello"   // answered once; the connection then remains open until the keeper exits
	opKeep    op = "keep"    // starts reading Source
	opDone    op = "done"    // answered once all output of Source is in the log
	opWatch   op = "watch"   // answered with a frame immediately, and again whenever there are new lines in a log, until the machine is destroyed
	opDestroy op = "destroy" // removes all data about Machine
	opEnd     op = "end"     // makes the keeper exit without discarding anything
)

// request is a frame from the daemon. The fields in use depend on Op.
type request struct {
	Op       op               `json:"op"`
	Version  int              `json:"version,omitempty"` // for opHello
	Settings settings         `json:"settings,omitzero"` // for opHello
	Source   Source           `json:"source,omitzero"`
	Machine  bourse.MachineID `json:"machine,omitempty"`
}

// settings are part of a daemon's hello. Once received, they apply to all logs.
type settings struct {
	Bytes int64 `json:"bytes"`
	Files int   `json:"files"`
}

// reply is a frame from the keeper.
type reply struct {
	Error   *companion.Error `json:"error,omitempty"`
	Version int              `json:"version,omitempty"` // answer to opHello
	PID     int              `json:"pid,omitempty"`     // answer to opHello
	More    bool             `json:"more,omitempty"`    // whether another frame of this answer follows
}

// sourceID identifies a source. There is one source per boot.
type sourceID struct {
	machine bourse.MachineID
	boot    int
}

func (s Source) id() sourceID { return sourceID{s.Machine, s.Boot} }

// outputs returns the paths of the FIFOs by stream name.
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
		return bourse.Errorf(bourse.CodeInvalid, "boot %d: boot numbers start at 1", s.Boot)
	}
	if s.Stdout == "" || s.Stdout == s.Stderr {
		return bourse.Errorf(bourse.CodeInvalid, "invalid outputs %s and %s: use two FIFOs, or one for a terminal", bourse.Quoted(s.Stdout), bourse.Quoted(s.Stderr))
	}
	return nil
}
