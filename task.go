package bourse

import (
	"crypto/sha256"
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// TaskConfig configures a machine that stays warm for a task: its program answers
// payloads on a port, so a call requires no start.
type TaskConfig struct {
	Name        string       `json:"name"`                  // required; what calls name, one in its app
	Concurrency int          `json:"concurrency,omitempty"` // payloads at once; default 1, at most MaxTaskConcurrency
	Port        int          `json:"port,omitempty"`        // where the program listens; 0: what its $PORT says
	Protocol    TaskProtocol `json:"protocol,omitempty"`    // what the program speaks there; default TaskHTTP
	Timeout     Duration     `json:"timeout,omitempty"`     // no call takes longer; default: what the call says
}

// TaskProtocol is the protocol between a worker and a warm machine's program.
type TaskProtocol string

// The protocols. The empty one is TaskHTTP.
const (
	TaskHTTP   TaskProtocol = "http"   // a request for each payload
	TaskFrames TaskProtocol = "frames" // lines and bytes on one connection, which cost less: docs/tasks.md
)

// Bounds and defaults of tasks.
const (
	MaxPayload         = 1 << 20 // bytes
	MaxAnswer          = 1 << 20 // bytes
	MaxTaskConcurrency = 10000
	MaxTaskTimeout     = 5 * time.Minute
	DefaultTaskTimeout = 30 * time.Second
	DefaultTaskPort    = 8080 // of a machine with an address of its own
)

// Places returns the number of payloads that the machine accepts at once.
func (c *TaskConfig) Places() int { return max(1, c.Concurrency) }

// Validate reports CodeInvalid when a field is out of its range.
func (c *TaskConfig) Validate() error {
	if err := ValidateTaskName(c.Name); err != nil {
		return err
	}
	switch {
	case c.Concurrency < 0 || c.Concurrency > MaxTaskConcurrency:
		return Errorf(CodeInvalid, "invalid config.task.concurrency %d: use 1 to %d", c.Concurrency, MaxTaskConcurrency)
	case c.Port < 0 || c.Port > 65535:
		return Errorf(CodeInvalid, "invalid config.task.port %d: use 1 to 65535", c.Port)
	case c.Protocol != "" && c.Protocol != TaskHTTP && c.Protocol != TaskFrames:
		return Errorf(CodeInvalid, "invalid config.task.protocol %s: use %s or %s", Quoted(string(c.Protocol)), TaskHTTP, TaskFrames)
	case c.Timeout < 0 || time.Duration(c.Timeout) > MaxTaskTimeout:
		return Errorf(CodeInvalid, "invalid config.task.timeout %s: use up to %s", time.Duration(c.Timeout), MaxTaskTimeout)
	}
	return nil
}

// ValidateTaskName reports CodeInvalid unless s can name a task: the alphabet
// of an app name.
func ValidateTaskName(s string) error { return validateLabel("task", s) }

// TaskOrder is the task of an order: a payload to be answered. With a Name, the order is
// for a slot on a machine that is warm for that task, and takes the countables among its
// requirements. Without one it is for a machine that exists only for this payload: it
// reads the payload on stdin and writes the answer to stdout.
type TaskOrder struct {
	Name    string   `json:"name,omitempty"`
	Payload []byte   `json:"payload,omitempty"` // at most MaxPayload; left out when quotes are asked for
	Type    string   `json:"type,omitempty"`    // media type of the payload
	Timeout Duration `json:"timeout"`           // of the work, counted by its worker; required
	// Output, if set, is called with each part of the answer as the program writes it, and
	// once with none when the task begins. Calls are not concurrent.
	Output func(part []byte) `json:"-"`
}

// Warm reports whether the order is for a slot on a warm machine.
func (t *TaskOrder) Warm() bool { return t.Name != "" }

var mediaPattern = regexp.MustCompile(`^[a-zA-Z0-9!#$&^_.+-]{1,64}/[a-zA-Z0-9!#$&^_.+-]{1,64}(; ?charset=[a-zA-Z0-9-]{1,32})?$`)

// Validate reports CodeInvalid when a field is out of its range.
func (t *TaskOrder) Validate() error {
	if t.Name != "" {
		if err := ValidateTaskName(t.Name); err != nil {
			return err
		}
	}
	switch {
	case len(t.Payload) > MaxPayload:
		return Errorf(CodeInvalid, "the payload has %d bytes: at most %d", len(t.Payload), MaxPayload)
	case t.Timeout <= 0 || time.Duration(t.Timeout) > MaxTaskTimeout:
		return Errorf(CodeInvalid, "invalid timeout %s: use more than 0 and up to %s", time.Duration(t.Timeout), MaxTaskTimeout)
	case t.Type != "" && !mediaPattern.MatchString(t.Type):
		return Errorf(CodeInvalid, "invalid type %s: use a media type such as application/json", Quoted(t.Type))
	}
	return nil
}

// TaskResource returns the resource that counts the slots of machines that are warm for a
// task. It appears only in quotes: no countable has such a name.
func TaskResource(name string) Resource { return Resource("task " + name) }

// TaskEnd is the outcome of a task.
type TaskEnd string

// The outcomes of tasks. "" means that the task is in progress.
const (
	TaskAnswered TaskEnd = "answered"
	TaskFailed   TaskEnd = "failed"   // its program reported a failure, by status or exit code
	TaskBroken   TaskEnd = "broken"   // its program exited without an answer, or the answer was too long
	TaskTimeout  TaskEnd = "timeout"  // its timeout passed
	TaskCanceled TaskEnd = "canceled" // its caller disconnected
	TaskLost     TaskEnd = "lost"     // its worker was restarted during the task
)

// TaskResult is the outcome of a task. Its worker stores it with the order, and returns
// it again if the order is repeated.
type TaskResult struct {
	Order     OrderID       `json:"order"`
	Name      string        `json:"name,omitempty"`
	Worker    WorkerID      `json:"worker"`
	Region    Region        `json:"region"`
	Machine   MachineID     `json:"machine"`
	End       TaskEnd       `json:"end,omitempty"`
	ExitCode  int           `json:"exit_code,omitempty"` // of the program; of a warm one 0 or 1; -1 without one
	Status    int           `json:"status,omitempty"`    // of a warm program's reply
	Type      string        `json:"type,omitempty"`      // media type of the answer
	Answer    []byte        `json:"answer,omitempty"`    // at most MaxAnswer
	Error     string        `json:"error,omitempty"`     // the reason as text, unless it was answered
	StartedAt time.Time     `json:"started_at"`          // when it was recorded, by its worker's clock
	Took      time.Duration `json:"took,omitempty"`      // from then until its end
	Sum       []byte        `json:"sum,omitempty"`       // of the work, see [Order.TaskSum]; none of an order that is not repeated
}

// TaskTally counts a warm machine's tasks.
type TaskTally struct {
	Ran      int64     `json:"ran"`
	Failed   int64     `json:"failed"`             // of them: all that were not answered
	FailedAt time.Time `json:"failed_at,omitzero"` // the last one
	Error    string    `json:"error,omitempty"`    // its
}

// TaskSum returns a checksum that distinguishes a repetition of an order from a different
// task with the same id: SHA-256 of the task's name or program, and of its payload. It is
// nil for an order that cannot be repeated.
func (o *Order) TaskSum() []byte {
	if !o.Named || o.Task == nil {
		return nil
	}
	h := sha256.New()
	for _, part := range append([]string{o.Task.Name, o.Task.Type, o.Config.Image}, o.Config.Init.Command()...) {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	_, _ = h.Write([]byte{0}) // no length begins so
	_, _ = h.Write(o.Task.Payload)
	return h.Sum(nil)
}

// OK reports whether the task was answered.
func (r *TaskResult) OK() bool { return r.End == TaskAnswered }

// MediaType returns s if it is a media type with at most a charset, and "" otherwise.
func MediaType(s string) string {
	if mediaPattern.MatchString(s) {
		return s
	}
	return ""
}

// TaskPort returns the port at which a warm machine's program listens.
func (m *Machine) TaskPort() int {
	if m.Config.Task.Port != 0 {
		return m.Config.Task.Port
	}
	if m.Boot.Port != 0 {
		return m.Boot.Port
	}
	if n, err := strconv.ParseUint(m.Config.Env[envPort], 10, 16); err == nil && n > 0 {
		return int(n)
	}
	return DefaultTaskPort
}
