package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse/internal/loopback"
	"github.com/bourse-dev/bourse/machinesapi"
)

// replayFlyctl sends flyctl's requests, command by command, to a cluster with real
// workers, and compares the answers. The sequences are in broker/flycompat/testdata.
// Each file has its own app, $app, and one step per line. $listen is a program that
// listens on its $PORT.
//
//	## a command              begins a sequence; sequences of a file run in order
//	METHOD path [body]        a request; indented lines continue the body
//	let name text             sets $name to the text
//	= status [JSON]           the expected status, and members that the reply must contain
//	~ METHOD path             a request that is repeated until the reply is as expected
//	@nonce                    after the path of a request: the lease to send
//	! why                     skips a sequence that does not work yet
//
// In an expected reply, "?name" matches any text and sets $name to it, "*" matches any
// value, and "…text…" matches a text that contains the given one. A list that ends with
// "…" may be longer.
func replayFlyctl(t *testing.T, d *devCluster) {
	t.Parallel()
	files, err := filepath.Glob("../../broker/flycompat/testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no sequences were found: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		listen, err := exec.LookPath("listen")
		if err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			p := &player{api: d.API, vars: map[string]string{"app": "fly-" + name, "listen": listen}}
			for _, s := range sequences(t, string(text)) {
				if !t.Run(s.command, func(t *testing.T) { p.play(t, s) }) {
					return // the sequences that follow depend on this one
				}
			}
		})
	}
}

type sequence struct {
	command string
	steps   []string // requests, each followed by its reply
}

// sequences parses the text of a file.
func sequences(t *testing.T, text string) []sequence {
	t.Helper()
	var out []sequence
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.TrimSpace(line) == "" || strings.HasPrefix(line, "# "):
		case strings.HasPrefix(line, "## "):
			out = append(out, sequence{command: line[len("## "):]})
		case len(out) == 0:
			t.Fatalf("%q does not belong to a sequence", line)
		case line[0] == ' ' || line[0] == '\t':
			steps := out[len(out)-1].steps
			steps[len(steps)-1] += " " + strings.TrimSpace(line)
		default:
			out[len(out)-1].steps = append(out[len(out)-1].steps, line)
		}
	}
	return out
}

// player runs the sequences in one file.
type player struct {
	api  string
	vars map[string]string
}

func (p *player) play(t *testing.T, s sequence) {
	for len(s.steps) > 0 {
		if why, ok := strings.CutPrefix(s.steps[0], "! "); ok {
			t.Skip(why)
		}
		if name, value, ok := strings.Cut(strings.TrimPrefix(s.steps[0], "let "), " "); ok && strings.HasPrefix(s.steps[0], "let ") {
			p.vars[name] = p.filled(value)
			s.steps = s.steps[1:]
			continue
		}
		if len(s.steps) < 2 || !strings.HasPrefix(s.steps[1], "= ") {
			t.Fatalf("%s has no reply", s.steps[0])
		}
		request, again := strings.CutPrefix(s.steps[0], "~ ")
		want := s.steps[1][len("= "):]
		if again {
			await(t, request+" = "+want, func() bool { return p.step(t, request, want) == "" })
		} else if problem := p.step(t, request, want); problem != "" {
			t.Fatalf("%s\n%s", s.steps[0], problem)
		}
		s.steps = s.steps[2:]
	}
}

// step sends a request. It returns a description of the first difference between the
// reply and want, or "" if there is none.
func (p *player) step(t *testing.T, request, want string) string {
	t.Helper()
	method, rest, _ := strings.Cut(p.filled(request), " ")
	path, body, _ := strings.Cut(rest, " ")
	req, err := http.NewRequestWithContext(t.Context(), method, p.api+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if nonce, others, ok := strings.Cut(strings.TrimPrefix(body, "@"), " "); strings.HasPrefix(body, "@") {
		req.Header.Set(machinesapi.HeaderNonce, nonce)
		if body = ""; ok {
			body = others
		}
		req.Body, req.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	}
	if body == "" {
		req.Body = http.NoBody
	}
	token, _ := loopback.Find(os.Getenv, p.api)
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	status, shape, _ := strings.Cut(want, " ")
	if fmt.Sprint(resp.StatusCode) != status {
		return fmt.Sprintf("%d, want %s: %s", resp.StatusCode, status, raw)
	}
	if shape == "" {
		return ""
	}
	var has, should any
	if err := exactly(shape, &should); err != nil {
		t.Fatalf("%s: %v", shape, err)
	}
	if err := exactly(string(raw), &has); err != nil {
		return fmt.Sprintf("%v: %s", err, raw)
	}
	found := maps.Clone(p.vars)
	if problem := p.compare(found, "", should, has); problem != "" {
		return fmt.Sprintf("%s: %s", problem, raw)
	}
	p.vars = found
	return ""
}

// exactly decodes JSON, preserving the digits of numbers.
func exactly(text string, into *any) error {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	return dec.Decode(into)
}

var variable = regexp.MustCompile(`\$[a-z][a-z0-9]*\b`)

func (p *player) filled(s string) string {
	return variable.ReplaceAllStringFunc(s, func(name string) string {
		if v, ok := p.vars[name[1:]]; ok {
			return v
		}
		return name
	})
}

// compare returns a description of the first difference between a value in the reply
// and the expected value, or "" if there is none.
func (p *player) compare(found map[string]string, at string, should, has any) string {
	switch should := should.(type) {
	case map[string]any:
		got, ok := has.(map[string]any)
		if !ok {
			return fmt.Sprintf("%s is %v, want an object", at, has)
		}
		for k, v := range should {
			if problem := p.compare(found, at+"."+k, v, got[k]); problem != "" {
				return problem
			}
		}
		return ""
	case []any:
		got, ok := has.([]any)
		more := len(should) > 0 && should[len(should)-1] == "…"
		if more {
			should = should[:len(should)-1]
		}
		if !ok || len(got) < len(should) || !more && len(got) != len(should) {
			return fmt.Sprintf("%s is %v, want %d elements", at, has, len(should))
		}
		for i, v := range should {
			if problem := p.compare(found, fmt.Sprintf("%s[%d]", at, i), v, got[i]); problem != "" {
				return problem
			}
		}
		return ""
	case string:
		text, ok := has.(string)
		name, keeps := strings.CutPrefix(should, "?")
		inner, part := strings.CutPrefix(should, "…")
		switch {
		case should == "*" && has != nil:
			return ""
		case keeps && has != nil && fmt.Sprint(has) != "":
			found[name] = fmt.Sprint(has)
			return ""
		case part && ok && strings.Contains(text, p.filled(strings.TrimSuffix(inner, "…"))):
			return ""
		case has != nil && fmt.Sprint(has) == p.filled(should):
			return ""
		}
	default:
		if has == should {
			return ""
		}
	}
	return fmt.Sprintf("%s is %v, want %v", at, has, should)
}
