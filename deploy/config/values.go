package config

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/shlex"
	"go.yaml.in/yaml/v3"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/workload"
)

// reader is implemented by types whose values can be written in several ways. If n is invalid, read returns a
// description of the valid values. Otherwise, it returns "".
type reader interface {
	read(n *yaml.Node) (allowed string)
}

// Texts maps names to strings. Numbers and booleans become strings exactly as written.
type Texts map[string]string

func (t *Texts) read(n *yaml.Node) string {
	if *t == nil {
		*t = Texts{}
	}
	if kindOf(n) == list { // a list of tables; later tables override earlier ones
		for _, item := range n.Content {
			if kindOf(item) != table {
				return "a table of strings"
			}
			if allowed := t.read(item); allowed != "" {
				return allowed
			}
		}
		return ""
	}
	if kindOf(n) != table {
		return "a table of strings"
	}
	for name, value := range members(n) {
		written, ok := word(value)
		if !ok {
			return "a string for " + bourse.Quoted(name.Value)
		}
		(*t)[name.Value] = written
	}
	return ""
}

// Words is a list of arguments. It can be written as a list of strings, or as a string, which is a single argument
// even if it contains spaces.
type Words []string

func (w *Words) read(n *yaml.Node) string {
	const allowed = "a list of strings"
	items := n.Content
	switch kindOf(n) {
	case text:
		items = []*yaml.Node{n}
	case list:
	default:
		return allowed
	}
	*w = make(Words, 0, len(items))
	for _, item := range items {
		if kindOf(item) != text {
			return allowed
		}
		*w = append(*w, item.Value)
	}
	return ""
}

// split splits a command line into words like a POSIX shell, but without expansion, so that
// $PORT stays $PORT. Errors: invalid for an unclosed quote.
func split(line string) ([]string, error) {
	words, err := shlex.Split(line)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "invalid command %s: %w", bourse.Quoted(line), err)
	}
	return words, nil
}

// Values contains the values of an HTTP header.
type Values []string

// MarshalJSON encodes a single value as a string, and several as a list.
func (v Values) MarshalJSON() ([]byte, error) {
	if len(v) == 1 {
		return json.Marshal(v[0])
	}
	return json.Marshal([]string(v))
}

func (v *Values) read(n *yaml.Node) string {
	if kindOf(n) == list {
		return (*Words)(v).read(n)
	}
	written, ok := word(n)
	if !ok {
		return "a string or a list of strings"
	}
	*v = Values{written}
	return ""
}

// edit decodes a [workload.Edit].
type edit workload.Edit

func (e *edit) read(n *yaml.Node) string {
	if kindOf(n) == boolean && !isTrue(n) {
		*e = edit{}
		return ""
	}
	if kindOf(n) == boolean || (*Values)(e).read(n) != "" {
		return "a string, a list of strings, or false to remove the header"
	}
	return ""
}

// autostop decodes a [workload.Autostop].
type autostop workload.Autostop

func (a *autostop) read(n *yaml.Node) string {
	switch {
	case isTrue(n):
		*a = autostop(workload.AutostopStop)
	case kindOf(n) == boolean:
		*a = autostop(workload.AutostopOff)
	case kindOf(n) == text && (n.Value == "off" || n.Value == "stop" || n.Value == "suspend"):
		*a = autostop(n.Value)
	default:
		return `"off", "stop" or "suspend" (false means "off", and true means "stop")`
	}
	return ""
}

// limits decodes concurrency limits in their former syntax, "soft,hard".
func limits(c *workload.Concurrency, written string) string {
	soft, hard, _ := strings.Cut(written, ",")
	low, err := strconv.ParseUint(strings.TrimSpace(soft), 10, 30)
	high, err2 := strconv.ParseUint(strings.TrimSpace(hard), 10, 30)
	if err != nil || err2 != nil {
		return "a table with soft_limit and hard_limit"
	}
	*c = workload.Concurrency{Type: "requests", Soft: int(low), Hard: int(high)}
	return ""
}

// MB is an amount of memory in MiB.
type MB int64

// MarshalJSON encodes the amount as "512mb".
func (m MB) MarshalJSON() ([]byte, error) {
	return json.Marshal(strconv.FormatInt(int64(m), 10) + "mb")
}

func (m *MB) read(n *yaml.Node) string {
	mib, ok := sizeOf(n, 1)
	if !ok {
		return `a size such as "512mb" or "2gb", or a number of megabytes`
	}
	*m = MB(mib)
	return ""
}

// GB is the size of a disk in GiB.
type GB int64

// MarshalJSON encodes the size as "10gb".
func (g GB) MarshalJSON() ([]byte, error) {
	return json.Marshal(strconv.FormatInt(int64(g), 10) + "gb")
}

func (g *GB) read(n *yaml.Node) string {
	mib, ok := sizeOf(n, 1024)
	if !ok || mib%1024 != 0 {
		return `whole gigabytes, such as "10gb" or 10`
	}
	*g = GB(mib / 1024)
	return ""
}

// sizeOf decodes a size and returns it in MiB. The size is an integer, or a string that [mebibytes] accepts.
func sizeOf(n *yaml.Node, bare int64) (int64, bool) {
	if number, ok := integer(n); ok {
		return mebibytes(strconv.FormatInt(number, 10), bare)
	}
	if kindOf(n) != text {
		return 0, false
	}
	return mebibytes(n.Value, bare)
}

// mebibytes parses a size and returns it in MiB. A number without a unit is multiplied by bare.
func mebibytes(written string, bare int64) (int64, bool) {
	digits := strings.TrimRight(strings.ToLower(strings.TrimSpace(written)), "bi")
	unit := bare
	for suffix, mib := range map[string]int64{"m": 1, "g": 1024, "t": 1024 * 1024} {
		if rest, ok := strings.CutSuffix(digits, suffix); ok {
			digits, unit = rest, mib
			break
		}
	}
	f, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
	mib := f * float64(unit)
	if err != nil || !(mib >= 0 && mib <= 1<<40) || mib != float64(int64(mib)) { // written this way to reject NaN
		return 0, false
	}
	return int64(mib), true
}

// requirement decodes a [bourse.Requirement].
func requirement(n *yaml.Node) (bourse.Requirement, string) {
	if k := kindOf(n); k == text || k == boolean {
		return bourse.Requirement{Label: n.Value}, ""
	}
	if number, ok := integer(n); ok && number >= 1 && number <= bourse.MaxAmount {
		return bourse.Requirement{Count: number}, ""
	}
	return bourse.Requirement{}, fmt.Sprintf("a string (the value of a label) or a whole number from 1 to %d", int64(bourse.MaxAmount))
}
