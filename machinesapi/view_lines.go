package machinesapi

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/bourse-dev/bourse"
)

// MaxViewLine is the maximum length of one line of a result, in bytes.
const MaxViewLine = 16 << 20

// viewStream tracks the lines of a result. It distinguishes a complete result from a truncated or
// invalid one.
type viewStream struct {
	live    bool   // the result belongs to a subscription, so changes follow the rows
	resumed bool   // the subscription was resumed, so its reader already has the rows
	change  uint64 // number of the last change, or of the change after which the subscription was resumed

	columns []string
	ended   bool
}

// lines decodes a result. After the end line of a query, the sequence stops without an error. In all
// other cases, it ends with an error: the server's error, CodeUnavailable if the stream broke, or
// CodeInternal if a line is invalid.
func (v *viewStream) lines(r io.Reader) iter.Seq2[ViewLine, error] {
	return func(yield func(ViewLine, error) bool) {
		in := bufio.NewReader(r)
		for n := 1; ; n++ {
			raw, err := readLine(in, MaxViewLine)
			if err == nil {
				var line ViewLine
				var known bool
				line, known, err = v.decode(raw)
				if _, coded := err.(*bourse.Error); err != nil && !coded { //nolint:errorlint // created by decode
					err = bourse.Errorf(bourse.CodeInternal, "line %d of the reply is invalid: %w", n, err)
				}
				if err == nil && known && !yield(line, nil) {
					return
				}
				if err == nil && (v.live || !v.ended) {
					continue
				}
			}
			if err != nil {
				yield(ViewLine{}, err)
			}
			return
		}
	}
}

// readLine returns the next line without its line break. limit is the maximum length of a line. At
// the end of the stream, readLine returns CodeUnavailable, because the caller does not read beyond
// the last line of a complete result.
func readLine(in *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		if len(line)+len(part) > limit {
			return nil, bourse.Errorf(bourse.CodeInternal, "a line of the reply is longer than %d bytes", limit)
		}
		switch {
		case err == nil && line == nil:
			return bytes.TrimSpace(part), nil // part is valid until the next read
		case err == nil:
			return bytes.TrimSpace(append(line, part...)), nil
		case errors.Is(err, bufio.ErrBufferFull):
			line = append(line, part...)
		case errors.Is(err, io.EOF):
			return nil, bourse.Errorf(bourse.CodeUnavailable, "the reply is incomplete: the connection was closed")
		default:
			return nil, fmt.Errorf("read the reply: %w", err)
		}
	}
}

// wireLine is the JSON form of a line.
type wireLine struct {
	Columns *[]string       `json:"columns"`
	Row     json.RawMessage `json:"row"`
	End     *ViewEnd        `json:"end"`
	Change  json.RawMessage `json:"change"`
	Error   *ViewError      `json:"error"`
}

// decode decodes a line, and checks that this kind of line is allowed at this point in the result.
// known is false if this release does not know this kind of line, which a newer server may send.
func (v *viewStream) decode(raw []byte) (line ViewLine, known bool, err error) {
	if len(raw) == 0 {
		return line, false, nil
	}
	var w wireLine
	if err := json.Unmarshal(raw, &w); err != nil {
		return line, false, err
	}
	switch {
	case w.Error != nil:
		return line, false, serverError(w.Error)
	case w.Columns != nil:
		line.Columns, err = v.takeColumns(*w.Columns)
	case w.Row != nil:
		line.Row, err = v.takeRow(w.Row)
	case w.End != nil:
		line.End, err = v.takeEnd(w.End)
	case w.Change != nil:
		line.Change, err = v.takeChange(w.Change)
	default:
		return line, false, nil
	}
	return line, err == nil, err
}

func serverError(e *ViewError) error {
	code := e.Code
	if code == "" {
		code = bourse.CodeInternal
	}
	return &bourse.Error{Code: code, Message: e.Message}
}

func (v *viewStream) takeColumns(names []string) ([]string, error) {
	if v.columns != nil || v.ended {
		return nil, errors.New("unexpected second line with columns")
	}
	if names == nil {
		names = []string{}
	}
	v.columns = names
	return names, nil
}

func (v *viewStream) takeRow(raw json.RawMessage) (*ViewRow, error) {
	if v.columns == nil || v.ended {
		return nil, errors.New("unexpected row")
	}
	var row ViewRow
	var err error
	if v.live {
		err = decodeArray(raw, &row.ID, &row.Cells)
	} else {
		err = decodeNumbers(raw, &row.Cells)
	}
	blobs(row.Cells)
	if err == nil {
		err = v.checkRow(row.Cells)
	}
	return &row, err
}

func (v *viewStream) takeEnd(e *ViewEnd) (*ViewEnd, error) {
	if v.columns == nil && !v.resumed || v.ended {
		return nil, errors.New("unexpected end line")
	}
	v.ended = true
	if v.live {
		v.change = e.Change
	}
	return e, nil
}

func (v *viewStream) takeChange(raw json.RawMessage) (*ViewChange, error) {
	if !v.live || !v.ended && !v.resumed {
		return nil, errors.New("unexpected change")
	}
	var c ViewChange
	if err := decodeArray(raw, &c.ID, &c.Kind, &c.Row.ID, &c.Row.Cells); err != nil {
		return nil, err
	}
	blobs(c.Row.Cells)
	switch c.Kind {
	case RowInserted, RowUpdated, RowDeleted:
	default:
		return nil, fmt.Errorf("unknown kind of change %s", bourse.Quoted(string(c.Kind)))
	}
	if c.ID != v.change+1 {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "changes are missing: %d came after %d", c.ID, v.change)
	}
	v.change = c.ID
	if c.Kind == RowDeleted && len(c.Row.Cells) == 0 {
		return &c, nil // the deleted row's cells are optional
	}
	return &c, v.checkRow(c.Row.Cells)
}

// checkRow checks that a row has one cell for each column, if the columns are known.
func (v *viewStream) checkRow(cells []any) error {
	if v.columns != nil && len(cells) != len(v.columns) {
		return fmt.Errorf("the row has %d cells, want %d", len(cells), len(v.columns))
	}
	return nil
}

// decodeArray decodes a JSON array whose elements have different types.
func decodeArray(raw json.RawMessage, into ...any) error {
	var parts []json.RawMessage
	if err := json.Unmarshal(raw, &parts); err != nil {
		return err
	}
	if len(parts) != len(into) {
		return fmt.Errorf("the array has %d elements, want %d", len(parts), len(into))
	}
	for i, p := range parts {
		if err := decodeNumbers(p, into[i]); err != nil {
			return err
		}
	}
	return nil
}

// blobs replaces cells of the form {"blob": base64} with a [ViewBlob].
func blobs(cells []any) {
	for i, v := range cells {
		m, ok := v.(map[string]any)
		if !ok || len(m) != 1 {
			continue
		}
		if text, ok := m["blob"].(string); ok {
			if b, err := base64.StdEncoding.DecodeString(text); err == nil {
				cells[i] = ViewBlob{b}
			}
		}
	}
}

// decodeNumbers decodes JSON, but leaves numbers as json.Number, because a float64 cannot represent
// every int64.
func decodeNumbers(raw []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	return d.Decode(into)
}
