package query

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/bourse-dev/bourse"
)

// entry is a row of a subscription's result.
type entry struct {
	number   int64  // assigned when the row is added to the result, and never reused
	identity string // identifies the row in successive results
	text     []byte // the row's values as JSON
}

// result is the outcome of one run of a subscription's statement. It is immutable.
type result struct {
	columns []string
	rows    []entry
	at      map[string]int // index in rows, by identity
}

// change describes how one row differs between two successive results.
type change struct {
	op     string
	number int64
	text   []byte
}

// keyColumns returns the indexes of the columns that identify a row. If key is not empty, it names
// these columns. Otherwise, the column "id" identifies a row or, if there is no such column,
// "name". If both are missing, all columns together identify a row. Errors: invalid.
func keyColumns(columns, key []string) ([]int, error) {
	if len(key) == 0 {
		for _, name := range []string{"id", "name"} {
			if i := slices.Index(columns, name); i >= 0 {
				return []int{i}, nil
			}
		}
		key = columns
	}
	var at []int
	for _, name := range key {
		i := slices.Index(columns, name)
		if i < 0 {
			return nil, bourse.Errorf(bourse.CodeInvalid, "the result has no column %s for the key", bourse.Quoted(name))
		}
		at = append(at, i)
	}
	return at, nil
}

// identities returns, for each row, a string that identifies the row. The string consists of the
// values in the key columns, and a number that distinguishes rows with the same key by their order.
func identities(rows []record, key []int) []string {
	seen := make(map[string]int, len(rows))
	list := make([]string, len(rows))
	var b []byte
	for i := range rows {
		b = b[:0]
		for _, column := range key {
			b = append(append(b, rows[i].value(column)...), ',')
		}
		n := seen[string(b)]
		seen[string(b)] = n + 1
		list[i] = string(strconv.AppendInt(b, int64(n), 10))
	}
	return list
}

// compare builds a result from rows and returns it together with its differences from the result
// old. If old is nil, all rows are new. New rows receive consecutive numbers, beginning with next.
func compare(old *result, columns []string, key []int, rows []record, next int64) (*result, []change) {
	now := &result{columns: columns, rows: make([]entry, 0, len(rows)), at: make(map[string]int, len(rows))}
	var changes []change
	names := identities(rows, key)
	for i, name := range names {
		now.at[name] = i
	}
	if old != nil {
		for _, was := range old.rows {
			if _, ok := now.at[was.identity]; !ok {
				changes = append(changes, change{opDelete, was.number, was.text})
			}
		}
	}
	for i, name := range names {
		row := entry{identity: name, text: rows[i].text}
		was, ok := old.find(name)
		switch {
		case !ok:
			row.number = next
			next++
			changes = append(changes, change{opInsert, row.number, row.text})
		case !bytes.Equal(was.text, row.text):
			row.number = was.number
			changes = append(changes, change{opUpdate, row.number, row.text})
		default:
			row = was // use the old row, so that its text is not stored twice
		}
		now.rows = append(now.rows, row)
	}
	return now, changes
}

func (r *result) find(identity string) (entry, bool) {
	if r == nil {
		return entry{}, false
	}
	i, ok := r.at[identity]
	if !ok {
		return entry{}, false
	}
	return r.rows[i], true
}

// line encodes c as a line. n is the number of the change.
func (c change) line(n int64) []byte {
	b := make([]byte, 0, len(c.text)+48)
	b = strconv.AppendInt(append(b, `{"change":[`...), n, 10)
	b = append(append(append(b, `,"`...), c.op...), `",`...)
	b = strconv.AppendInt(b, c.number, 10)
	return append(append(append(b, ','), c.text...), "]}"...)
}

// line encodes the row as a line for readers that receive the complete result.
func (e entry) line() []byte {
	b := make([]byte, 0, len(e.text)+32)
	b = strconv.AppendInt(append(b, `{"row":[`...), e.number, 10)
	return append(append(append(b, ','), e.text...), "]}"...)
}
