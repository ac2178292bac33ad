package logs

import (
	"bytes"
	"time"

	"github.com/bourse-dev/bourse/driver"
)

// Log files use the CRI format, which log collectors support:
//
//	2026-01-02T15:04:05.000000006Z stdout F a line, or the last part of a long line
//	2026-01-02T15:04:05.000000006Z stdout P another part of a long line
//
// See kubernetes/cri-api: docs/logging, "container runtime logging".

// maxLine is the maximum length in bytes of a line that is not split.
const maxLine = 16 << 10

// recordOverhead is an upper bound for the size of a record in bytes, not counting its text.
const recordOverhead = 64

// appendLine appends one record to b.
func appendLine(b []byte, at time.Time, stream string, partial bool, text []byte) []byte {
	b = at.UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, ' ')
	b = append(b, stream...)
	if partial {
		b = append(b, " P "...)
	} else {
		b = append(b, " F "...)
	}
	b = append(b, text...)
	return append(b, '\n')
}

// parseLine parses a record without its newline. It returns false if b is not a record, for example
// an incomplete record that a crash left behind.
func parseLine(b []byte) (driver.LogLine, bool) {
	stamp, rest, ok := bytes.Cut(b, []byte(" "))
	if !ok {
		return driver.LogLine{}, false
	}
	at, err := time.Parse(time.RFC3339Nano, string(stamp))
	if err != nil {
		return driver.LogLine{}, false
	}
	stream, rest, ok := bytes.Cut(rest, []byte(" "))
	if !ok || (string(stream) != "stdout" && string(stream) != "stderr") || len(rest) < 2 || rest[1] != ' ' {
		return driver.LogLine{}, false
	}
	if rest[0] != 'F' && rest[0] != 'P' {
		return driver.LogLine{}, false
	}
	return driver.LogLine{At: at, Stream: string(stream), Partial: rest[0] == 'P', Text: string(rest[2:])}, true
}

// piece returns the first line in data, without its newline. If the line is too long, piece returns
// only the line's first part. size is the number of bytes that text occupies in data, including the
// newline. It is 0 if data contains only the beginning of a line.
func piece(data []byte) (text []byte, size int, partial bool) {
	i := bytes.IndexByte(data[:min(len(data), maxLine+1)], '\n')
	switch {
	case i >= 0:
		return data[:i], i + 1, false
	case len(data) > maxLine:
		return data[:maxLine], maxLine, true
	}
	return nil, 0, false
}

// splitLines calls line with each line in data. It splits a long line into pieces; all except the
// last are partial. It returns the incomplete line at the end of data.
func splitLines(data []byte, line func(text []byte, partial bool)) []byte {
	for {
		text, size, partial := piece(data)
		if size == 0 {
			return data
		}
		line(text, partial)
		data = data[size:]
	}
}
