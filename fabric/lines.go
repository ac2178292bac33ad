package fabric

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"

	"github.com/bourse-dev/bourse"
)

// maxLine is the maximum length of a line in a reply. The longest possible line is a task's answer, encoded in base64.
const maxLine = 2*bourse.MaxAnswer + 1<<20

// readLines calls line for each JSON line of a worker's reply until the reply ends. If line returns an error, readLines
// stops and returns that error. It also returns an error if the stream breaks.
func readLines[T any](ctx context.Context, from bourse.Member, reply io.Reader, line func(T) error) error {
	lines := bufio.NewScanner(reply)
	lines.Buffer(nil, maxLine)
	lines.Split(wholeLines)
	for lines.Scan() {
		var v T
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			if !bytes.HasSuffix(lines.Bytes(), newline) {
				// The last line is incomplete, so the stream broke.
				return Lost(ctx, from, cmp.Or(lines.Err(), io.ErrUnexpectedEOF))
			}
			return bourse.Errorf(bourse.CodeInternal, "worker %s sent an invalid line: %w", from.ID, err)
		}
		if err := line(v); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return Lost(ctx, from, err)
	}
	return nil
}

var newline = []byte{'\n'}

// wholeLines is a bufio.SplitFunc that returns lines including their terminators. The last line may lack one.
func wholeLines(data []byte, atEOF bool) (advance int, line []byte, err error) {
	n := bytes.IndexByte(data, '\n') + 1
	if n == 0 && atEOF {
		n = len(data)
	}
	if n == 0 {
		return 0, nil, nil
	}
	return n, data[:n], nil
}
