package store

import (
	"bytes"
	"encoding/binary"
	"encoding/json"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
)

// encodeRun writes a run's record: the version byte, then three parts, each
// with its length as a varint before it: the record without request and
// result, as JSON, the request, the result. The last two are JSON already, the
// largest part, and the same in every transition: they are copied, not encoded
// anew.
func encodeRun(rec fsm.Record) ([]byte, error) {
	request, result := rec.Request, rec.Result
	rec.Request, rec.Result = nil, nil
	head, err := json.Marshal(rec)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "encode a run: %w", err)
	}
	b := make([]byte, 0, 1+3*binary.MaxVarintLen32+len(head)+len(request)+len(result))
	b = append(b, recordVersion)
	for _, part := range [][]byte{head, request, result} {
		b = binary.AppendUvarint(b, uint64(len(part)))
		b = append(b, part...)
	}
	return b, nil
}

// decodeRun reads what encodeRun wrote. It keeps nothing of b.
func decodeRun(b []byte) (rec fsm.Record, err error) {
	if len(b) == 0 || b[0] != recordVersion {
		return rec, bourse.Errorf(bourse.CodeInternal, "damaged record of a run: %s", bourse.Quoted(string(b)))
	}
	b = b[1:]
	var parts [3][]byte
	for i := range parts {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > uint64(len(b)-size) {
			return rec, bourse.Errorf(bourse.CodeInternal, "damaged record of a run: it is cut short")
		}
		parts[i], b = b[size:size+int(n)], b[size+int(n):]
	}
	if len(b) > 0 {
		return rec, bourse.Errorf(bourse.CodeInternal, "damaged record of a run: %d bytes too many", len(b))
	}
	if err := json.Unmarshal(parts[0], &rec); err != nil {
		return rec, bourse.Errorf(bourse.CodeInternal, "damaged record of a run: %w", err)
	}
	rec.Request, rec.Result = bytes.Clone(parts[1]), bytes.Clone(parts[2])
	if len(rec.Request) == 0 {
		rec.Request = nil
	}
	if len(rec.Result) == 0 {
		rec.Result = nil
	}
	return rec, nil
}
