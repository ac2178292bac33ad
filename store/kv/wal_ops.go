package kv

import (
	"encoding/binary"
	"slices"

	"github.com/bourse-dev/bourse"
)

// The operations in a record's body. An operation consists of one of these bytes, the bucket, the
// key and, for a put, the value. The bucket, key and value are each preceded by their length as a
// uvarint.
const (
	opPut    = 1
	opDelete = 2
)

// appendOp appends an operation to a record.
func appendOp(b []byte, c *change) []byte {
	op := byte(opPut)
	if c.value == nil {
		op = opDelete
	}
	b = append(b, op)
	b = append(binary.AppendUvarint(b, uint64(len(c.bucket))), c.bucket...)
	b = append(binary.AppendUvarint(b, uint64(len(c.key))), c.key...)
	if op == opPut {
		b = append(binary.AppendUvarint(b, uint64(len(c.value))), c.value...)
	}
	return b
}

// readOps calls visit for each operation in a record's body. The keys and values are slices of
// body. readOps returns CodeInternal if an operation is malformed or its bucket is not in buckets.
func readOps(body []byte, buckets []string, visit func(change)) error {
	part := func() []byte {
		n, k := binary.Uvarint(body)
		if k <= 0 || n > uint64(len(body)-k) {
			body = nil
			return nil
		}
		p := body[k : k+int(n) : k+int(n)]
		body = body[k+int(n):]
		return p
	}
	for len(body) > 0 {
		op := body[0]
		body = body[1:]
		name := part()
		bucket := slices.IndexFunc(buckets, func(b string) bool { return b == string(name) })
		c := change{key: part()}
		if op == opPut {
			c.value = part()
		}
		if op != opPut && op != opDelete || bucket < 0 || len(c.key) == 0 || op == opPut && c.value == nil {
			return bourse.Errorf(bourse.CodeInternal, "the write-ahead log is damaged: invalid operation on %s", bourse.Quoted(string(name)))
		}
		c.bucket = buckets[bucket]
		visit(c)
	}
	return nil
}
