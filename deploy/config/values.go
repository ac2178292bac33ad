package config

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/shlex"

	"github.com/bourse-dev/bourse"
)

// reader is a value that can be written in more than one way. read returns what is
// allowed when the node is none of them.
type reader interface {
	read(n *node) (allowed string)
}

// Texts are texts by name; numbers and truths are taken as they are written.
type Texts map[string]string

func (t *Texts) read(n *node) string {
	if *t == nil {
		*t = Texts{}
	}
	if n.kind == list { // of tables, one over the other
		for _, item := range n.items {
			if item.kind != table {
				return "a table of texts"
			}
			if allowed := t.read(item); allowed != "" {
				return allowed
			}
		}
		return ""
	}
	if n.kind != table {
		return "a table of texts"
	}
	for _, m := range n.members {
		switch m.value.kind {
		case text, whole, fraction, truth, date:
			(*t)[m.name] = m.value.text
		case null:
			(*t)[m.name] = ""
		case list, table:
			return "a text for " + bourse.Quoted(m.name)
		}
	}
	return ""
}

// Words are a command: a list, or one text, which is one word.
type Words []string

func (w *Words) read(n *node) string {
	const allowed = "a list of texts"
	switch n.kind {
	case text:
		*w = Words{n.text}
		return ""
	case list:
		*w = make(Words, 0, len(n.items))
		for _, item := range n.items {
			if item.kind != text {
				return allowed
			}
			*w = append(*w, item.text)
		}
		return ""
	case null, whole, fraction, truth, date, table:
	}
	return allowed
}

// Split splits a command line into words as a POSIX shell would, without
// expanding anything: $PORT stays $PORT. CodeInvalid for a quote that is not closed.
func Split(line string) ([]string, error) {
	words, err := shlex.Split(line)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "invalid command %s: %w", bourse.Quoted(line), err)
	}
	return words, nil
}

// Values are the values of one header.
type Values []string

// MarshalJSON writes one value as a text.
func (v Values) MarshalJSON() ([]byte, error) {
	if len(v) == 1 {
		return json.Marshal(v[0])
	}
	return json.Marshal([]string(v))
}

func (v *Values) read(n *node) string {
	if n.kind == list {
		return (*Words)(v).read(n)
	}
	var one Texts
	if one.read(&node{kind: table, members: []member{{value: n}}}) != "" {
		return "a text, or a list of them"
	}
	*v = Values{one[""]}
	return ""
}

// Edit sets a header of replies to its values; with none it removes the header.
type Edit []string

// MarshalJSON writes false, a text, or a list.
func (e Edit) MarshalJSON() ([]byte, error) {
	if len(e) == 0 {
		return []byte("false"), nil
	}
	return Values(e).MarshalJSON()
}

func (e *Edit) read(n *node) string {
	if n.kind == truth && !n.truth {
		*e = Edit{}
		return ""
	}
	if n.kind == truth || (*Values)(e).read(n) != "" {
		return "a text, a list of them, or false to remove the header"
	}
	return ""
}

// Autostop is what becomes of a machine that no one uses: "off", "stop" or
// "suspend"; false and true mean the first two.
type Autostop string

func (a *Autostop) read(n *node) string {
	switch {
	case n.kind == truth && n.truth:
		*a = "stop"
	case n.kind == truth:
		*a = "off"
	case n.kind == text && (n.text == "off" || n.text == "stop" || n.text == "suspend"):
		*a = Autostop(n.text)
	default:
		return `"off", "stop" or "suspend" (false and true mean the first two)`
	}
	return ""
}

// limits reads what files had before there were tables for it: "soft,hard".
func (c *Concurrency) limits(n *node) string {
	soft, hard, _ := strings.Cut(n.text, ",")
	low, err := strconv.ParseUint(strings.TrimSpace(soft), 10, 30)
	high, err2 := strconv.ParseUint(strings.TrimSpace(hard), 10, 30)
	if err != nil || err2 != nil {
		return "a table with soft_limit and hard_limit"
	}
	*c = Concurrency{Type: "requests", Soft: int64(low), Hard: int64(high)}
	return ""
}

// MB is an amount of memory in MiB.
type MB int64

// MarshalJSON writes "512mb".
func (m MB) MarshalJSON() ([]byte, error) {
	return json.Marshal(strconv.FormatInt(int64(m), 10) + "mb")
}

func (m *MB) read(n *node) string {
	mib, ok := mebibytes(n, 1)
	if !ok {
		return `a size such as "512mb" or "2gb", or a number of megabytes`
	}
	*m = MB(mib)
	return ""
}

// GB is a size of a disk in GiB.
type GB int64

// MarshalJSON writes "10gb".
func (g GB) MarshalJSON() ([]byte, error) {
	return json.Marshal(strconv.FormatInt(int64(g), 10) + "gb")
}

func (g *GB) read(n *node) string {
	mib, ok := mebibytes(n, 1024)
	if !ok || mib%1024 != 0 {
		return `whole gigabytes, "10gb" or 10`
	}
	*g = GB(mib / 1024)
	return ""
}

// mebibytes reads a size; a number without a unit is of bare MiB.
func mebibytes(n *node, bare int64) (int64, bool) {
	written := n.text
	switch n.kind {
	case text:
	case whole:
		written = strconv.FormatInt(n.whole, 10)
	case null, fraction, truth, date, list, table:
		return 0, false
	}
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
	if err != nil || !(mib >= 0 && mib <= 1<<40) || mib != float64(int64(mib)) { // what is no number is not at least 0
		return 0, false
	}
	return int64(mib), true
}

// requirement is a [bourse.Requirement] in a file.
func requirement(n *node) (bourse.Requirement, string) {
	switch {
	case n.kind == text:
		return bourse.Requirement{Label: n.text}, ""
	case n.kind == truth:
		return bourse.Requirement{Label: n.text}, ""
	case n.kind == whole && n.whole >= 1 && n.whole <= bourse.MaxAmount:
		return bourse.Requirement{Count: n.whole}, ""
	}
	return bourse.Requirement{}, fmt.Sprintf("a text (a label's value) or a whole number from 1 to %d", int64(bourse.MaxAmount))
}
