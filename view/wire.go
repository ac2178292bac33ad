package view

import (
	"fmt"

	"github.com/fxamacker/cbor/v2"

	"github.com/bourse-dev/bourse"
)

// WireVersion is the first byte of every encoded transaction and snapshot. What
// follows is CBOR with integer keys, in the deterministic encoding of RFC 8949
// §4.2.1. A release may add keys, which older ones ignore; it changes the
// version only when older ones must not read on.
const WireVersion = 1

// maxFrame bounds an encoded transaction that is taken in. It is twice what a
// site may write, so that a row that is too large is refused alone and does
// not hold up its stream.
const maxFrame = 2 * MaxTx

// Bounds of positions, so that SQLite's integers hold them and a clock gives
// epochs for long.
const (
	maxEpoch = 1 << 53
	maxSeq   = 1 << 53
)

// wireHeader is the beginning of wireTx, to look at one without its rows.
type wireHeader struct {
	Site  string `cbor:"1,keyasint"`
	Epoch uint64 `cbor:"2,keyasint"`
	Seq   uint64 `cbor:"3,keyasint"`
	At    int64  `cbor:"4,keyasint"`
}

// wireTx is a transaction on the wire. Its rows are byte strings with wireRows
// in them: each is decoded alone, so that a bad one is refused alone.
type wireTx struct {
	wireHeader
	Rows [][]byte `cbor:"5,keyasint"`
}

// wireRow is a row on the wire. The fields from Seq on stand in snapshots
// only, Site and Epoch in shared ones only.
type wireRow struct {
	Table   string         `cbor:"1,keyasint"`
	Key     string         `cbor:"2,keyasint"`
	Columns map[string]any `cbor:"3,keyasint,omitempty"`
	Deleted bool           `cbor:"4,keyasint,omitempty"`
	Clock   uint64         `cbor:"5,keyasint,omitempty"`
	Seq     uint64         `cbor:"6,keyasint,omitempty"`
	At      int64          `cbor:"7,keyasint,omitempty"`
	Site    string         `cbor:"8,keyasint,omitempty"`
	Epoch   uint64         `cbor:"9,keyasint,omitempty"`
}

// codec encodes and decodes; it has no state.
type codec struct {
	enc cbor.EncMode
	dec cbor.DecMode
}

var wire = newCodec()

func newCodec() codec {
	enc, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		panic(err) // the options are constants
	}
	dec, err := cbor.DecOptions{
		DupMapKey:        cbor.DupMapKeyEnforcedAPF,
		MaxNestedLevels:  16,
		MaxArrayElements: 4 * MaxRows,
		MaxMapPairs:      4 * MaxColumns,
		IndefLength:      cbor.IndefLengthForbidden,
		TagsMd:           cbor.TagsForbidden,
		IntDec:           cbor.IntDecConvertSignedOrFail,
		NaN:              cbor.NaNDecodeForbidden,
		Inf:              cbor.InfDecodeForbidden,
	}.DecMode()
	if err != nil {
		panic(err)
	}
	return codec{enc, dec}
}

// Encode gives a transaction as it goes over the wire. CodeInvalid: it exceeds
// a bound or has a value of a type that no column has.
func Encode(tx *Transaction) ([]byte, error) {
	rows := make([][]byte, len(tx.Rows))
	for i, r := range tx.Rows {
		var err error
		if rows[i], err = encodeRow(r); err != nil {
			return nil, err
		}
	}
	return encodeTx(tx, rows)
}

func encodeRow(r Row) ([]byte, error) {
	w := wireRow{Table: r.Table, Key: r.Key, Deleted: r.Deleted, Clock: uint64(r.Clock)}
	if len(r.Columns) > 0 {
		w.Columns = make(map[string]any, len(r.Columns))
	}
	for name, v := range r.Columns {
		value, err := scalar(v)
		if err != nil {
			return nil, bourse.Errorf(bourse.CodeInvalid, "column %s of row %s in %s: %w", name, bourse.Quoted(r.Key), r.Table, err)
		}
		w.Columns[name] = value
	}
	b, err := wire.enc.Marshal(w)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "encode row %s of %s: %w", bourse.Quoted(r.Key), r.Table, err)
	}
	return b, nil
}

func encodeTx(tx *Transaction, rows [][]byte) ([]byte, error) {
	if len(rows) > MaxRows {
		return nil, bourse.Errorf(bourse.CodeInvalid, "a transaction of %d rows, at most %d", len(rows), MaxRows)
	}
	b, err := wire.enc.Marshal(wireTx{wireHeader{string(tx.Site), tx.Epoch, tx.Seq, tx.At}, rows})
	if err != nil {
		return nil, fmt.Errorf("encode transaction: %w", err)
	}
	if len(b)+1 > MaxTx {
		return nil, bourse.Errorf(bourse.CodeInvalid, "a transaction of %d bytes, at most %d", len(b)+1, MaxTx)
	}
	return append([]byte{WireVersion}, b...), nil
}

// Peek gives the position of an encoded transaction, without a look at its
// rows. CodeInvalid: it is none.
func Peek(encoded []byte) (Position, error) {
	var h wireHeader
	if err := open(encoded, &h); err != nil {
		return Position{}, err
	}
	return h.position()
}

// Decode gives an encoded transaction. CodeInvalid: it is malformed. What its
// rows say is not compared with any schema.
func Decode(encoded []byte) (*Transaction, error) {
	tx, rows, err := decodeTx(encoded)
	if err != nil {
		return nil, err
	}
	for _, raw := range rows {
		r, err := decodeRow(raw)
		if err != nil {
			return nil, bourse.Errorf(bourse.CodeInvalid, "decode a row of transaction %d of %s: %w", tx.Seq, tx.Site, err)
		}
		tx.Rows = append(tx.Rows, r.row())
	}
	return tx, nil
}

// decodeTx leaves the rows encoded.
func decodeTx(encoded []byte) (*Transaction, [][]byte, error) {
	var w wireTx
	if err := open(encoded, &w); err != nil {
		return nil, nil, err
	}
	p, err := w.position()
	if err != nil {
		return nil, nil, err
	}
	if len(w.Rows) > MaxRows {
		return nil, nil, bourse.Errorf(bourse.CodeInvalid, "a transaction of %d rows, at most %d", len(w.Rows), MaxRows)
	}
	return &Transaction{Position: p, At: w.At}, w.Rows, nil
}

func decodeRow(raw []byte) (wireRow, error) {
	var w wireRow
	err := wire.dec.Unmarshal(raw, &w)
	return w, err
}

func (w wireRow) row() Row {
	r := Row{Table: w.Table, Key: w.Key, Deleted: w.Deleted, Clock: Clock(w.Clock)}
	if len(w.Columns) > 0 {
		r.Columns = make(map[string]Value, len(w.Columns))
	}
	for name, v := range w.Columns {
		r.Columns[name] = v
	}
	return r
}

// open decodes what follows the version byte.
func open(encoded []byte, into any) error {
	switch {
	case len(encoded) == 0:
		return bourse.Errorf(bourse.CodeInvalid, "an empty transaction")
	case len(encoded) > maxFrame:
		return bourse.Errorf(bourse.CodeInvalid, "a transaction of %d bytes, at most %d", len(encoded), maxFrame)
	case encoded[0] != WireVersion:
		return bourse.Errorf(bourse.CodeInvalid, "a transaction in wire version %d, this release reads %d", encoded[0], WireVersion)
	}
	if err := wire.dec.Unmarshal(encoded[1:], into); err != nil {
		return bourse.Errorf(bourse.CodeInvalid, "a malformed transaction: %w", err)
	}
	return nil
}

// position gives and checks where the transaction stands.
func (h wireHeader) position() (Position, error) {
	p := Position{Stream{bourse.WorkerID(h.Site), h.Epoch}, h.Seq}
	switch {
	case len(h.Site) > maxName: // its letters are looked at when the stream is new
		return Position{}, bourse.Errorf(bourse.CodeInvalid, "a transaction of site %s", bourse.Quoted(h.Site))
	case h.Epoch == 0 || h.Epoch >= maxEpoch || h.Seq == 0 || h.Seq >= maxSeq:
		return Position{}, bourse.Errorf(bourse.CodeInvalid, "a transaction at epoch %d, number %d", h.Epoch, h.Seq)
	case h.At < 0:
		return Position{}, bourse.Errorf(bourse.CodeInvalid, "a transaction of before 1970")
	}
	return p, nil
}
