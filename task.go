package bourse

import (
	"crypto/sha256"
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// TaskConfig configures a machine that stays warm for a task. Its program receives payloads on a
// port, so a call does not have to wait for a program to start.
type TaskConfig struct {
	Name        string       `json:"name"`                  // name of the task, which calls in the same app use; required
	Concurrency int          `json:"concurrency,omitempty"` // maximum number of concurrent payloads; default 1, at most MaxTaskConcurrency
	Port        int          `json:"port,omitempty"`        // port on which the program listens; 0: the machine's $PORT
	Protocol    TaskProtocol `json:"protocol,omitempty"`    // protocol that the program uses; default TaskHTTP
	Timeout     Duration     `json:"timeout,omitempty"`     // maximum time for each call; default: the time limit of the call
}

// TaskProtocol is the protocol between a worker and a warm machine's program.
type TaskProtocol string

// Protocols. An empty protocol means TaskHTTP.
const (
	TaskHTTP   TaskProtocol = "http"   // an HTTP request for each payload
	TaskFrames TaskProtocol = "frames" // lines and bytes on one connection, with less overhead than HTTP; see docs/tasks.md
)

// Defaults and limits of tasks.
const (
	MaxPayload         = 1 << 20 // in bytes
	MaxAnswer          = 1 << 20 // in bytes
	MaxTaskConcurrency = 10000
	MaxTaskTimeout     = 5 * time.Minute
	DefaultTaskTimeout = 30 * time.Second
	DefaultTaskPort    = 8080 // default port of a machine with its own address
)

// Places returns the number of payloads that the machine accepts at the same time.
func (c *TaskConfig) Places() int { return max(1, c.Concurrency) }

// Validate returns CodeInvalid if a field is out of range.
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

// ValidateTaskName returns CodeInvalid unless s can be the name of a task. It must have the form of
// an app name.
func ValidateTaskName(s string) error { return validateLabel("task", s) }

// TaskOrder describes an order's task: a payload that must be answered. If Name is set, the order
// is for a slot on a machine that is warm for that task, and it also takes the countable resources
// in the order's requirements. Otherwise, the order is for a machine that exists only for this
// payload. Such a machine reads the payload from stdin and writes the answer to stdout.
type TaskOrder struct {
	Name    string   `json:"name,omitempty"`
	Payload []byte   `json:"payload,omitempty"` // at most MaxPayload bytes; omitted from requests for quotes
	Type    string   `json:"type,omitempty"`    // media type of the payload
	Timeout Duration `json:"timeout"`           // time limit for the work, by the worker's clock; required
	// Output, if set, is called with each part of the answer as the program writes it. It is also
	// called once with an empty part when the task begins. Calls are never concurrent.
	Output func(part []byte) `json:"-"`
}

// Warm reports whether the order is for a slot on a warm machine.
func (t *TaskOrder) Warm() bool { return t.Name != "" }

var mediaPattern = regexp.MustCompile(`^[a-zA-Z0-9!#$&^_.+-]{1,64}/[a-zA-Z0-9!#$&^_.+-]{1,64}(; ?charset=[a-zA-Z0-9-]{1,32})?$`)

// Validate returns CodeInvalid if a field is out of range.
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

// TaskResource returns the name of the resource that counts the slots on machines that are warm for
// a task. The resource appears only in quotes. Operators cannot define a countable resource with
// such a name, because it contains a space.
func TaskResource(name string) Resource { return Resource("task " + name) }

// TaskEnd is the outcome of a task.
type TaskEnd string

// Outcomes of tasks. "" means that the task is in progress.
const (
	TaskAnswered TaskEnd = "answered"
	TaskFailed   TaskEnd = "failed"   // the program reported a failure, with its status or exit code
	TaskBroken   TaskEnd = "broken"   // the program exited without an answer, or the answer was too long
	TaskTimeout  TaskEnd = "timeout"  // the timeout passed
	TaskCanceled TaskEnd = "canceled" // the caller disconnected
	TaskLost     TaskEnd = "lost"     // the worker was restarted during the task
)

// TaskResult is the result of a task. The worker stores it with the order, and returns it again if
// the order is repeated.
type TaskResult struct {
	Order     OrderID       `json:"order"`
	Name      string        `json:"name,omitempty"`
	Worker    WorkerID      `json:"worker"`
	Region    Region        `json:"region"`
	Machine   MachineID     `json:"machine"`
	End       TaskEnd       `json:"end,omitempty"`
	ExitCode  int           `json:"exit_code,omitempty"` // exit code of the program; 0 or 1 for a warm program; -1: there is no exit code
	Status    int           `json:"status,omitempty"`    // HTTP status of a warm program's reply
	Type      string        `json:"type,omitempty"`      // media type of the answer
	Answer    []byte        `json:"answer,omitempty"`    // at most MaxAnswer bytes
	Error     string        `json:"error,omitempty"`     // reason as text, unless the task was answered
	StartedAt time.Time     `json:"started_at"`          // when the worker recorded the task, by the worker's clock
	Took      time.Duration `json:"took,omitempty"`      // time from StartedAt until the task ended
	Sum       []byte        `json:"sum,omitempty"`       // checksum of the work; see [Order.TaskSum]; nil if the order cannot be repeated
}

// TaskCounts contains statistics about the tasks of a warm machine.
type TaskCounts struct {
	Total    int64     `json:"total"`
	Failed   int64     `json:"failed"`             // number of tasks that were not answered
	FailedAt time.Time `json:"failed_at,omitzero"` // when a task last failed
	Error    string    `json:"error,omitempty"`    // error of the task that failed last
}

// TaskSum returns a checksum that distinguishes a repeated order from a different task with the
// same order ID. It is the SHA-256 of the task's name or program, and of its payload. TaskSum
// returns nil if the caller has not chosen the order's ID, because such an order cannot be
// repeated.
func (o *Order) TaskSum() []byte {
	if !o.HasChosenID || o.Task == nil {
		return nil
	}
	h := sha256.New()
	for _, part := range append([]string{o.Task.Name, o.Task.Type, o.Config.Image}, o.Config.Init.Command()...) {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	_, _ = h.Write([]byte{0}) // a separator; no length begins with this byte
	_, _ = h.Write(o.Task.Payload)
	return h.Sum(nil)
}

// OK reports whether the task's program returned an answer.
func (r *TaskResult) OK() bool { return r.End == TaskAnswered }

// MediaType returns s if it is a media type without parameters other than charset. Otherwise it
// returns "".
func MediaType(s string) string {
	if mediaPattern.MatchString(s) {
		return s
	}
	return ""
}

// TaskPort returns the port on which a warm machine's program listens.
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
