package serve_test

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli/serve"
)

func TestRead(t *testing.T) {
	got, err := serve.Read(strings.NewReader(`[
		{"Name": "web", "Command": "./web | tee log", "Restart": "always"},
		{"name": "job.1", "command": ["./job", "a b"]}
	]`))
	want := []serve.Task{
		{Name: "web", Command: bourse.Command{"sh", "-c", "./web | tee log"}, Restart: bourse.RestartAlways},
		{Name: "job.1", Command: bourse.Command{"./job", "a b"}, Restart: bourse.RestartOnFailure},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
}

func TestReadErrors(t *testing.T) {
	for what, c := range map[string]struct{ text, want string }{
		"nothing":             {"", "line 1"},
		"not JSON":            {"web: ./web", "line 1"},
		"an object":           {`{"Name": "web"}`, "line 1"},
		"an empty list":       {"[]", "empty"},
		"a list of strings":   {"[\n\"web\"]", "task 1, line 2"},
		"cut short":           {"[\n{\"Name\": \"a\", \"Command\": \"x\"},\n{\"Na", "task 2, line 3"},
		"no closing bracket":  {"[{\"Name\": \"a\", \"Command\": \"x\"}\n", "line 2"},
		"text after the list": {"[{\"Name\": \"a\", \"Command\": \"x\"}]\n\n[]", "line 3"},
		"a name twice":        {"[{\"Name\": \"a\", \"Command\": \"x\"},\n\n{\"Name\": \"a\", \"Command\": \"y\"}]", "task 2, line 3: the name a is already used by the task in line 1"},
		"no name":             {`[{"Command": "x"}]`, "invalid name"},
		"a name with blanks":  {`[{"Name": "a b", "Command": "x"}]`, "invalid name"},
		"a name as a path":    {`[{"Name": "../a", "Command": "x"}]`, "invalid name"},
		"a long name":         {`[{"Name": "` + strings.Repeat("a", 64) + `", "Command": "x"}]`, "invalid name"},
		"no command":          {`[{"Name": "a"}]`, "task 1, line 1: a has no command"},
		"an empty command":    {`[{"Name": "a", "Command": " "}]`, "invalid command"},
		"an empty list of arguments": {
			`[{"Name": "a", "Command": []}]`, "invalid command",
		},
		"a NUL":             {`[{"Name": "a", "Command": "x\u0000"}]`, "NUL"},
		"a number":          {`[{"Name": "a", "Command": 7}]`, "invalid command"},
		"an unknown policy": {`[{"Name": "a", "Command": "x", "Restart": "sometimes"}]`, "no, always or on-failure"},
		"an unknown field":  {`[{"Name": "a", "Command": "x", "Restarts": "no"}]`, "Restarts"},
		"too many":          {"[" + many(serve.MaxTasks+1) + "]", "more than 1000 tasks"},
	} {
		_, err := serve.Read(strings.NewReader(c.text))
		if bourse.CodeOf(err) != bourse.CodeInvalid || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want invalid with %q", what, err, c.want)
		}
	}
}

func many(n int) string {
	var tasks []string
	for i := range n {
		tasks = append(tasks, fmt.Sprintf(`{"Name":"n%d","Command":"x"}`, i))
	}
	return strings.Join(tasks, ",")
}

// TestReadLimitsTheSize checks that Read rejects a list of 100 MiB because of its size, without reading all of it.
func TestReadLimitsTheSize(t *testing.T) {
	const size = 100 << 20
	r := &io.LimitedReader{R: endless{}, N: size}
	_, err := serve.Read(r)
	if bourse.CodeOf(err) != bourse.CodeInvalid || r.N < size-2*serve.MaxBytes {
		t.Errorf("error %v with %d bytes read, want invalid after about %d", err, size-r.N, serve.MaxBytes)
	}
}

type endless struct{}

func (endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = ' '
	}
	return len(b), nil
}

// FuzzRead checks that Read returns only valid tasks, and only errors with the code
// invalid.
func FuzzRead(f *testing.F) {
	for _, text := range []string{
		`[{"Name":"a","Command":"x","Restart":"no"}]`, `[{"Name":"a","Command":["x","y"]}]`, `[`, `[{}]`, `[[]]`, `null`, "[\n\n,]", `[{"Name":"a","Command":null}]`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		tasks, err := serve.Read(strings.NewReader(string(text)))
		if err != nil {
			if bourse.CodeOf(err) != bourse.CodeInvalid {
				t.Errorf("%q: %v, want invalid", text, err)
			}
			return
		}
		seen := map[string]bool{}
		for _, task := range tasks {
			if task.Name == "" || seen[task.Name] || len(task.Command) == 0 || task.Command[0] == "" || task.Restart == "" || task.Restart.Validate() != nil {
				t.Errorf("%q was parsed as %+v", text, tasks)
			}
			seen[task.Name] = true
		}
	})
}
