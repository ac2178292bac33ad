// Package compact writes and reads small records in the wire format of
// protocol buffers, without reflection and without generated code, where JSON
// would cost more than everything else that is done with them. A field has a number and
// is a text, an integer or a record. What is empty is left out, and a reader
// skips what it does not know: records of older and newer releases are read alike.
package compact

import (
	"iter"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/bourse-dev/bourse"
)

// Number is a field's number: 1 or more, and the same in all releases. A new
// field has the next one, and that of one that is gone is not used again.
type Number = int32

// Text appends a field of bytes.
func Text[T ~string | ~[]byte](b []byte, n Number, v T) []byte {
	if len(v) == 0 {
		return b
	}
	b = protowire.AppendVarint(protowire.AppendTag(b, protowire.Number(n), protowire.BytesType), uint64(len(v)))
	return append(b, v...)
}

// Part appends a field that is a record of its own, also an empty one: it may be
// one of a list.
func Part(b []byte, n Number, record []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, protowire.Number(n), protowire.BytesType), record)
}

// Int appends a field of an integer.
func Int[T ~int | ~int64](b []byte, n Number, v T) []byte {
	if v == 0 {
		return b
	}
	return number(b, n, int64(v))
}

func number(b []byte, n Number, v int64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, protowire.Number(n), protowire.VarintType), protowire.EncodeZigZag(v))
}

// Bool appends a field that is true.
func Bool(b []byte, n Number, yes bool) []byte {
	if !yes {
		return b
	}
	return number(b, n, 1)
}

// Time appends a field of a time of the years 1678 to 2262, in nanoseconds.
func Time(b []byte, n Number, t time.Time) []byte {
	if t.IsZero() {
		return b
	}
	return number(b, n, t.UnixNano())
}

// Field is a field of a record.
type Field struct {
	Number Number
	Bytes  []byte // of a text or a record; part of the record that it is read from
	Int    int64  // of an integer
}

// Time is what Time appended, in UTC.
func (f Field) Time() time.Time { return time.Unix(0, f.Int).UTC() }

var errDamaged = bourse.Errorf(bourse.CodeInvalid, "no record: it is cut short or damaged")

// Fields yields a record's fields in order, without those of a kind that
// nothing here appends. The last one comes with CodeInvalid if what follows is
// no field.
func Fields(record []byte) iter.Seq2[Field, error] {
	return func(yield func(Field, error) bool) {
		for len(record) > 0 {
			f, rest, err := cut(record)
			record = rest
			if f.Number != 0 || err != nil {
				if !yield(f, err) || err != nil {
					return
				}
			}
		}
	}
}

// cut returns the first field of a record, with number 0 when it is to be
// skipped, and what follows it.
func cut(record []byte) (f Field, rest []byte, err error) {
	number, kind, n := protowire.ConsumeTag(record)
	if n < 0 {
		return f, nil, errDamaged
	}
	record = record[n:]
	switch kind {
	case protowire.BytesType:
		f.Number = Number(number)
		f.Bytes, n = protowire.ConsumeBytes(record)
	case protowire.VarintType:
		var v uint64
		f.Number = Number(number)
		v, n = protowire.ConsumeVarint(record)
		f.Int = protowire.DecodeZigZag(v)
	default:
		n = protowire.ConsumeFieldValue(number, kind, record)
	}
	if n < 0 {
		return Field{}, nil, errDamaged
	}
	return f, record[n:], nil
}
