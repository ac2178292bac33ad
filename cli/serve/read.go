package serve

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"

	"github.com/bourse-dev/bourse"
)

// Task is a command to run.
type Task struct {
	Name    string               // unique name, which is printed before each line of the task's output
	Command bourse.Command       // a list of arguments, or a string for "sh -c"
	Restart bourse.RestartPolicy // when to restart the task; on-failure by default
}

// Limits of a task list.
const (
	MaxTasks = 1000
	MaxBytes = 1 << 20
)

var taskName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// Read parses a JSON list of tasks: [{"Name", "Command", "Restart"}]. Errors: invalid, with
// the task's number and the line.
func Read(r io.Reader) ([]Task, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxBytes+1))
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "read the tasks: %w", err)
	}
	if len(text) > MaxBytes {
		return nil, bourse.Errorf(bourse.CodeInvalid, "the list of tasks exceeds %d bytes", MaxBytes)
	}
	l := list{text: text, dec: json.NewDecoder(bytes.NewReader(text)), lines: map[string]int{}}
	l.dec.DisallowUnknownFields()
	if err := l.read(); err != nil {
		return nil, err
	}
	return l.tasks, nil
}

// list is the state of the parser.
type list struct {
	text  []byte
	dec   *json.Decoder
	tasks []Task
	lines map[string]int // line numbers by task name
}

func (l *list) read() error {
	if first, err := l.dec.Token(); err != nil || first != json.Delim('[') {
		return bourse.Errorf(bourse.CodeInvalid, `line %d: use a list of tasks such as [{"Name": "web", "Command": "./web"}]`, l.line())
	}
	for l.dec.More() {
		if err := l.next(); err != nil {
			return err
		}
	}
	if _, err := l.dec.Token(); err != nil {
		return bourse.Errorf(bourse.CodeInvalid, "line %d: the list of tasks is not JSON: %w", l.line(), err)
	}
	if _, err := l.dec.Token(); !errors.Is(err, io.EOF) {
		return bourse.Errorf(bourse.CodeInvalid, "line %d: unexpected text after the list of tasks", l.line())
	}
	if len(l.tasks) == 0 {
		return bourse.Errorf(bourse.CodeInvalid, "the list of tasks is empty")
	}
	return nil
}

// next parses the next task.
func (l *list) next() error {
	line, number := l.line(), len(l.tasks)+1
	reject := func(format string, args ...any) error {
		err := bourse.Errorf(bourse.CodeInvalid, format, args...)
		return bourse.Errorf(bourse.CodeInvalid, "task %d, line %d: %w", number, line, err)
	}
	var t Task
	err := l.dec.Decode(&t)
	first, twice := l.lines[t.Name]
	switch {
	case err != nil:
		return reject("%w", err)
	case number > MaxTasks:
		return reject("more than %d tasks", MaxTasks)
	case !taskName.MatchString(t.Name):
		return reject("invalid name %s: use 1 to 63 letters, digits, dots, dashes and underscores, beginning with a letter or digit", bourse.Quoted(t.Name))
	case twice:
		return reject("the name %s is already used by the task in line %d", t.Name, first)
	case len(t.Command) == 0:
		return reject("%s has no command", t.Name)
	}
	if err := t.Restart.Validate(); err != nil {
		return reject("%w", err)
	}
	if t.Restart == "" {
		t.Restart = bourse.RestartOnFailure
	}
	l.lines[t.Name] = line
	l.tasks = append(l.tasks, t)
	return nil
}

// line returns the number of the line that contains the next token, starting at 1.
func (l *list) line() int {
	at := int(l.dec.InputOffset())
	for at < len(l.text) && bytes.IndexByte([]byte(" \t\r\n,"), l.text[at]) >= 0 {
		at++
	}
	return 1 + bytes.Count(l.text[:at], []byte("\n"))
}
