package process

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// protocolVersion is what this release speaks. The hello and its answer never
// change shape, so that releases can always tell each other their versions.
const protocolVersion = 1

// maxFrame bounds a frame. Linux gives a program at most 2 MiB of arguments
// and environment with usual limits; base64 makes that 2.7 MiB.
const maxFrame = 4 << 20

// listChunk is how many statuses go into one frame of an answer.
const listChunk = 500

// op names what a daemon asks of its supervisor.
type op string

const (
	opHello    op = "hello"    // first on the daemon's connection: take over
	opExec     op = "exec"     // first and only on a connection of its own
	opList     op = "list"     // every task held; several frames
	opHold     op = "hold"     // keep these exits, which an earlier supervisor lost
	opStart    op = "start"    //
	opSignal   op = "signal"   //
	opStop     op = "stop"     //
	opForget   op = "forget"   //
	opDestroy  op = "destroy"  //
	opWatch    op = "watch"    // a frame at once and whenever there is more in a log, until the machine is destroyed
	opCancel   op = "cancel"   // give the request with this ID up; has no answer of its own
	opShutdown op = "shutdown" // end and remove everything, then exit
)

// request is a frame from the daemon. Which fields are set depends on Op.
type request struct {
	ID      uint64           `json:"id"`
	Op      op               `json:"op"`
	Hello   *hello           `json:"hello,omitempty"`
	Start   *spec            `json:"start,omitempty"`
	Task    driver.TaskID    `json:"task,omitzero"`
	Machine bourse.MachineID `json:"machine,omitempty"`
	Signal  int              `json:"signal,omitempty"`
	Timeout time.Duration    `json:"timeout,omitempty"`
	Command [][]byte         `json:"command,omitempty"` // of an exec
	Hold    []driver.Status  `json:"hold,omitempty"`
}

// reply is a frame from the supervisor: the answer to the request with its
// ID, or with ID 0 news of a task that has ended.
type reply struct {
	ID       uint64          `json:"id,omitempty"`
	Error    *wireError      `json:"error,omitempty"`
	Hello    *helloReply     `json:"hello,omitempty"`
	Status   *driver.Status  `json:"status,omitempty"`
	List     []driver.Status `json:"list,omitempty"`
	More     bool            `json:"more,omitempty"`     // another frame of this answer follows
	Exit     *bourse.Exit    `json:"exit,omitempty"`     // of an exec
	Replaced bool            `json:"replaced,omitempty"` // another daemon has taken over: do not come back
}

// hello opens a daemon's connection.
type hello struct {
	Version  int      `json:"version"`
	Settings settings `json:"settings"`
}

// settings come with each hello, so that a restarted daemon can change them
// for a supervisor that has outlived the one before. They hold for tasks
// started from then on.
type settings struct {
	LogBytes int64 `json:"log_bytes"`
	LogFiles int   `json:"log_files"`
	NoLimits bool  `json:"no_limits,omitempty"`
}

type helloReply struct {
	Version int               `json:"version"`
	PID     int               `json:"pid"`
	Labels  map[string]string `json:"labels,omitempty"`
}

// spec is a task as the supervisor starts it. Strings of the host are bytes,
// which JSON would not let through unharmed.
type spec struct {
	ID      driver.TaskID `json:"id"`
	Command [][]byte      `json:"command"`
	Env     [][]byte      `json:"env,omitempty"`
	Dir     []byte        `json:"dir,omitempty"`
	User    *identity     `json:"user,omitempty"`
	Limits  driver.Limits `json:"limits"`
}

// identity is a user that a task runs as.
type identity struct {
	Name   string   `json:"name"`
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups,omitempty"`
}

// wireError is an error with its code.
type wireError struct {
	Code    bourse.Code `json:"code"`
	Message string      `json:"message"`
}

func wireErrorOf(err error) *wireError {
	if err == nil {
		return nil
	}
	return &wireError{Code: bourse.CodeOf(err), Message: err.Error()}
}

func (e *wireError) err() error {
	if e == nil {
		return nil
	}
	return &bourse.Error{Code: e.Code, Message: e.Message}
}

var errFrameSize = errors.New("frame too large")

// frames pools the buffers that frames are written from.
var frames = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// writeFrame writes v as one frame with one call of Write.
func writeFrame(w io.Writer, v any) error {
	b := frames.Get().(*bytes.Buffer)
	defer func() {
		if b.Cap() <= 1<<16 { // the rare large one is for the garbage collector
			frames.Put(b)
		}
	}()
	b.Reset()
	b.Write(make([]byte, 4))
	if err := json.NewEncoder(b).Encode(v); err != nil {
		return fmt.Errorf("encode frame: %w", err)
	}
	if b.Len()-4 > maxFrame {
		return errFrameSize
	}
	binary.BigEndian.PutUint32(b.Bytes(), uint32(b.Len()-4))
	_, err := w.Write(b.Bytes())
	return err
}

// readFrame reads one frame into v.
func readFrame(r *bufio.Reader, v any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	return readBody(r, binary.BigEndian.Uint32(head[:]), v)
}

// readBody reads the rest of a frame after its length. Memory grows with what
// has come, not with what the length promises.
func readBody(r io.Reader, length uint32, v any) error {
	if length > maxFrame {
		return fmt.Errorf("%w: %d bytes", errFrameSize, length)
	}
	b := frames.Get().(*bytes.Buffer)
	defer func() {
		if b.Cap() <= 1<<16 {
			frames.Put(b)
		}
	}()
	b.Reset()
	switch n, err := io.CopyN(b, r, int64(length)); {
	case errors.Is(err, io.EOF) && n < int64(length):
		return io.ErrUnexpectedEOF
	case err != nil:
		return err
	}
	if err := json.Unmarshal(b.Bytes(), v); err != nil {
		return fmt.Errorf("decode frame: %w", err)
	}
	return nil
}
