package machinesapi

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/bourse-dev/bourse"
)

// RunTask is the body of a request to run a task. It specifies either a task for which the app has warm machines, or
// a program to run.
type RunTask struct {
	Task          string              `json:"task,omitempty"`
	Image         string              `json:"image,omitempty"`   // image to run, instead of Task
	Command       []string            `json:"command,omitempty"` // the whole command line; if empty, the image's own command runs
	Env           map[string]string   `json:"env,omitempty"`
	Guest         *bourse.Guest       `json:"guest,omitempty"`
	Payload       json.RawMessage     `json:"payload,omitempty"`        // a string is sent as text, any other value as JSON
	PayloadBase64 []byte              `json:"payload_base64,omitempty"` // binary payload, instead of Payload
	Region        string              `json:"region,omitempty"`         // a region expression; default "any"
	Requirements  bourse.Requirements `json:"requirements,omitempty"`
	Timeout       bourse.Duration     `json:"timeout,omitempty"` // time limit for the task; default 30s, at most 5m
}

// Schedule is a short form of RunTask. The app is always "default", and the body of the reply
// contains only the answer.
type Schedule struct {
	Task         string
	Payload      json.RawMessage
	Requirements ScheduleRequirements
}

// ScheduleRequirements contains the region and the requirements of a RunTask. In JSON, they are the members of one
// object, and their names may be capitalized: {"Region": "gru", "Slots": 1}.
type ScheduleRequirements struct {
	Region string
	All    bourse.Requirements // requirements by lower-case name
}

// UnmarshalJSON decodes the object. All members except the region are requirements. Errors:
// invalid.
func (s *ScheduleRequirements) UnmarshalJSON(b []byte) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(b, &fields); err != nil {
		return err
	}
	*s = ScheduleRequirements{}
	for given, value := range fields {
		name := strings.ToLower(given)
		if bytes.Equal(value, jsonNull) {
			continue
		}
		if name == "region" {
			if err := json.Unmarshal(value, &s.Region); err != nil {
				return bourse.Errorf(bourse.CodeInvalid, "invalid Requirements.%s: use a string", given)
			}
			continue
		}
		var r bourse.Requirement
		if err := json.Unmarshal(value, &r); err != nil {
			return bourse.Errorf(bourse.CodeInvalid, "invalid Requirements.%s: use a string or an integer of at least 1", given)
		}
		if name == "slots" && r.Count == 0 {
			return bourse.Errorf(bourse.CodeInvalid, "invalid Requirements.%s %s: use an integer of at least 1", given, bourse.Quoted(r.Label))
		}
		if _, twice := s.All[name]; twice {
			return bourse.Errorf(bourse.CodeInvalid, "invalid Requirements.%s: specified twice", given)
		}
		if s.All == nil {
			s.All = bourse.Requirements{}
		}
		s.All[name] = r
	}
	return nil
}

// Order returns the part of the request that describes the task. Errors: invalid.
func (t *RunTask) Order() (*bourse.TaskOrder, error) {
	out := &bourse.TaskOrder{Name: t.Task, Timeout: t.Timeout}
	if out.Timeout == 0 {
		out.Timeout = bourse.Duration(bourse.DefaultTaskTimeout)
	}
	raw := bytes.TrimSpace(t.Payload)
	switch {
	case len(t.PayloadBase64) > 0 && len(raw) > 0 && !bytes.Equal(raw, jsonNull):
		return nil, bourse.Errorf(bourse.CodeInvalid, "payload and payload_base64 are mutually exclusive")
	case len(t.PayloadBase64) > 0:
		out.Payload, out.Type = t.PayloadBase64, "application/octet-stream"
	case len(raw) == 0 || bytes.Equal(raw, jsonNull):
	case raw[0] == '"':
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return nil, bourse.Errorf(bourse.CodeInvalid, "invalid payload: %w", err)
		}
		out.Payload, out.Type = []byte(text), "text/plain; charset=utf-8"
	default:
		out.Payload, out.Type = raw, typeJSON
	}
	return out, nil
}

// Config returns the config of the machine that runs the task. For a warm task, it contains only
// the requirements. Errors: invalid.
func (t *RunTask) Config() (bourse.Config, error) {
	c := bourse.Config{Requirements: t.Requirements}
	switch {
	case t.Task == "" && t.Image == "":
		return c, bourse.Errorf(bourse.CodeInvalid, "invalid task: task or image is required")
	case t.Task != "" && (t.Image != "" || len(t.Command) > 0 || len(t.Env) > 0 || t.Guest != nil):
		return c, bourse.Errorf(bourse.CodeInvalid, "task cannot be combined with image, command, env or guest")
	case t.Task != "":
		return c, nil
	}
	c.Image, c.Env, c.Guest, c.AutoDestroy = ImageName(t.Image), t.Env, t.Guest, true
	c.Init.Exec, c.Restart = t.Command, &bourse.Restart{Policy: bourse.RestartNo}
	return c, c.Normalize()
}

var jsonNull = []byte("null")

const typeJSON = "application/json"

// TaskReply is the result of a task. If the task failed, OK is false, and End and Error contain the reason.
type TaskReply struct {
	ID       bourse.OrderID `json:"id"`
	OK       bool           `json:"ok"`
	End      bourse.TaskEnd `json:"end"`
	ExitCode int            `json:"exit_code"`
	Status   int            `json:"status,omitempty"` // HTTP status of a warm program's reply
	// Answer is a JSON value if the program has declared its answer to be JSON, and otherwise a string.
	Answer       json.RawMessage  `json:"answer,omitempty"`
	AnswerBase64 []byte           `json:"answer_base64,omitempty"`
	Error        string           `json:"error,omitempty"`
	Worker       bourse.WorkerID  `json:"worker"`
	Region       bourse.Region    `json:"region"`
	Machine      bourse.MachineID `json:"machine"`
	StartedAt    time.Time        `json:"started_at"`
	TookMS       float64          `json:"took_ms"` // time from when the worker recorded the order until the task ended
	Repeated     bool             `json:"repeated,omitempty"`
}

// FromTask converts a result. repeated must be set if an earlier request with the same order ID ran the task.
func FromTask(r *bourse.TaskResult, repeated bool) TaskReply {
	out := TaskReply{
		ID: r.Order, OK: r.OK(), End: r.End, ExitCode: r.ExitCode, Status: r.Status, Error: r.Error, Worker: r.Worker, Region: r.Region,
		Machine: r.Machine, StartedAt: r.StartedAt, TookMS: float64(r.Took) / float64(time.Millisecond), Repeated: repeated,
	}
	mediaType, _, _ := bytes.Cut([]byte(r.Type), []byte(";"))
	switch {
	case len(r.Answer) == 0:
	case string(mediaType) == typeJSON && json.Valid(r.Answer):
		out.Answer = r.Answer
	case utf8.Valid(r.Answer):
		out.Answer, _ = json.Marshal(string(r.Answer)) // a string can always be encoded
	default:
		out.AnswerBase64 = r.Answer
	}
	return out
}

// Bytes returns the answer as the program wrote it, except that white space in JSON may differ.
func (t *TaskReply) Bytes() []byte {
	if len(t.AnswerBase64) > 0 {
		return t.AnswerBase64
	}
	var text string
	if len(t.Answer) > 0 && t.Answer[0] == '"' && json.Unmarshal(t.Answer, &text) == nil {
		return []byte(text)
	}
	return t.Answer
}
