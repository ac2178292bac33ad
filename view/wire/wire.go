package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/fxamacker/cbor/v2"

	"github.com/bourse-dev/bourse"
)

// WireVersion is the first byte of every encoded transaction and snapshot. In a transaction, it is
// followed by the length of the signature (uvarint), the signature and the body. Bodies are CBOR
// with integer keys in the deterministic encoding of RFC 8949 4.2.1. New keys may be added, because
// older releases ignore them. The wire version changes only if older releases must not read the
// data.
const WireVersion = 1

// MaxFrame is the maximum size, in bytes, of a transaction that a member accepts. It is twice the size that a site may
// write, so that a transaction with an oversized row can be accepted without that row. If members refused the whole
// transaction, the row would block the stream.
const MaxFrame = 2 * MaxTx

// Exclusive upper bounds on the numbers in a position, which must fit into SQLite's integers.
const (
	MaxEpoch = 1 << 53
	MaxSeq   = 1 << 53
)

// TxHead is the head of a TxBody. It can be decoded without the rows.
type TxHead struct {
	Site  string `cbor:"1,keyasint"`
	Epoch uint64 `cbor:"2,keyasint"`
	Seq   uint64 `cbor:"3,keyasint"`
	At    int64  `cbor:"4,keyasint"`
}

// TxBody is a transaction on the wire. Its rows are byte strings, each of which contains an encoded RowBody.
// Each row is decoded separately, so that an invalid row does not affect the others.
type TxBody struct {
	TxHead
	Rows  [][]byte `cbor:"5,keyasint"`
	Birth []byte   `cbor:"6,keyasint,omitempty"` // birth certificate of the epoch; required in its first transaction
	Prev  []byte   `cbor:"7,keyasint,omitempty"` // Link of the previous transaction
}

// RowBody is a row on the wire. Seq and At are not set in transactions. Site and Epoch are set only
// in proofs and in snapshots of shared rows.
type RowBody struct {
	Table   string         `cbor:"1,keyasint"`
	Key     string         `cbor:"2,keyasint"`
	Columns map[string]any `cbor:"3,keyasint,omitempty"`
	Deleted bool           `cbor:"4,keyasint,omitempty"`
	Clock   uint64         `cbor:"5,keyasint,omitempty"`
	Seq     uint64         `cbor:"6,keyasint,omitempty"`
	At      int64          `cbor:"7,keyasint,omitempty"`
	Site    string         `cbor:"8,keyasint,omitempty"`
	Epoch   uint64         `cbor:"9,keyasint,omitempty"`
	Sig     []byte         `cbor:"10,keyasint,omitempty"` // a shared row's signature by its site
	Birth   []byte         `cbor:"11,keyasint,omitempty"` // in snapshots of shared rows: the ID of the site's birth certificate
}

var (
	encoding = must(cbor.CoreDetEncOptions().EncMode())
	decoding = must(cbor.DecOptions{
		DupMapKey:        cbor.DupMapKeyEnforcedAPF,
		MaxNestedLevels:  16,
		MaxArrayElements: 4 * MaxRows,
		MaxMapPairs:      4 * MaxColumns,
		IndefLength:      cbor.IndefLengthForbidden,
		TagsMd:           cbor.TagsForbidden,
		IntDec:           cbor.IntDecConvertSignedOrFail,
		NaN:              cbor.NaNDecodeForbidden,
		Inf:              cbor.InfDecodeForbidden,
	}.DecMode())
)

func must[T any](mode T, err error) T {
	if err != nil {
		panic(err) // cannot fail, because the options are constants
	}
	return mode
}

// EncodeBody returns the CBOR encoding of v.
func EncodeBody(v any) ([]byte, error) { return encoding.Marshal(v) }

// ReadBody decodes CBOR into v.
func ReadBody(b []byte, v any) error { return decoding.Unmarshal(b, v) }

// Encode signs and encodes a transaction and its shared rows. It returns CodeInvalid if the transaction exceeds a
// limit or contains a value of an unsupported type.
func Encode(tx *Transaction, by SigningKey) ([]byte, error) {
	rows := make([][]byte, len(tx.Rows))
	var h Hasher
	for i, r := range tx.Rows {
		w, err := BodyOf(r)
		if err != nil {
			return nil, err
		}
		if r.Clock != 0 {
			if w.Sig, err = Sign(by.Key, Message(SignedRow, by.Cluster, h.Encode(r.Version(tx.Site)))); err != nil {
				return nil, err
			}
		}
		if rows[i], err = EncodeRow(w); err != nil {
			return nil, err
		}
	}
	return EncodeTx(tx, rows, by)
}

// Version converts r, a shared row that site writes, to a Version for hashing and signing.
func (r Row) Version(site bourse.WorkerID) Version {
	out := Version{Table: r.Table, Key: r.Key, Deleted: r.Deleted, Clock: r.Clock, Shared: true}
	out.Site = site
	for name, value := range r.Columns { // omits columns with default values
		if v, err := Scalar(value); err == nil && v != nil && v != "" && v != int64(0) && v != 0.0 {
			out.Columns = append(out.Columns, Column{name, v})
		}
	}
	slices.SortFunc(out.Columns, ByName)
	return out
}

// BodyOf returns the wire form of a row. It returns CodeInvalid if a value has an unsupported type.
func BodyOf(r Row) (RowBody, error) {
	w := RowBody{Table: r.Table, Key: r.Key, Deleted: r.Deleted, Clock: uint64(r.Clock)}
	if len(r.Columns) > 0 {
		w.Columns = make(map[string]any, len(r.Columns))
	}
	for name, v := range r.Columns {
		value, err := Scalar(v)
		if err != nil {
			return w, bourse.Errorf(bourse.CodeInvalid, "column %s of row %s in %s: %w", name, bourse.Quoted(r.Key), r.Table, err)
		}
		w.Columns[name] = value
	}
	return w, nil
}

// BodyOfVersion returns the wire form of a version, as used in snapshots and proofs.
func BodyOfVersion(r Version) RowBody {
	w := RowBody{Table: r.Table, Key: r.Key, Deleted: r.Deleted, Clock: uint64(r.Clock), Seq: r.Seq, At: r.At}
	if len(r.Columns) > 0 {
		w.Columns = make(map[string]any, len(r.Columns))
	}
	for _, c := range r.Columns {
		w.Columns[c.Name] = c.Value
	}
	return w
}

// EncodeRow encodes a row.
func EncodeRow(w RowBody) ([]byte, error) {
	b, err := EncodeBody(w)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "encode row %s of %s: %w", bourse.Quoted(w.Key), w.Table, err)
	}
	return b, nil
}

// EncodeTx signs and encodes a transaction whose rows are already encoded. It returns CodeInvalid if the transaction
// exceeds a limit.
func EncodeTx(tx *Transaction, rows [][]byte, by SigningKey) ([]byte, error) {
	if len(rows) > MaxRows {
		return nil, bourse.Errorf(bourse.CodeInvalid, "the transaction has %d rows, but at most %d are allowed", len(rows), MaxRows)
	}
	body, err := EncodeBody(TxBody{TxHead{string(tx.Site), tx.Epoch, tx.Seq, tx.At}, rows, by.Birth, by.Prev})
	if err != nil {
		return nil, fmt.Errorf("encode transaction: %w", err)
	}
	b, err := SignBody(body, by)
	if err == nil && len(b) > MaxTx {
		err = bourse.Errorf(bourse.CodeInvalid, "the transaction has %d bytes, but at most %d are allowed", len(b), MaxTx)
	}
	return b, err
}

// SignBody signs the body of a transaction.
func SignBody(body []byte, by SigningKey) ([]byte, error) {
	sig, err := Sign(by.Key, Message(signedTransaction, by.Cluster, body))
	if err != nil {
		return nil, err
	}
	b := make([]byte, 0, 1+binary.MaxVarintLen16+len(sig)+len(body))
	b = binary.AppendUvarint(append(b, WireVersion), uint64(len(sig)))
	return append(append(b, sig...), body...), nil
}

// splitSignature splits an encoded transaction into its signature and body.
func splitSignature(encoded []byte) (sig, body []byte, err error) {
	switch {
	case len(encoded) == 0:
		return nil, nil, bourse.Errorf(bourse.CodeInvalid, "the transaction is empty")
	case len(encoded) > MaxFrame:
		return nil, nil, bourse.Errorf(bourse.CodeInvalid, "the transaction has %d bytes, but at most %d are allowed", len(encoded), MaxFrame)
	case encoded[0] != WireVersion:
		return nil, nil, bourse.Errorf(bourse.CodeInvalid, "the transaction has wire version %d, but this program reads only %d", encoded[0], WireVersion)
	}
	size, n := binary.Uvarint(encoded[1:])
	if n <= 0 || size > maxSignature || uint64(len(encoded)-1-n) < size {
		return nil, nil, bourse.Errorf(bourse.CodeInvalid, "the transaction is truncated")
	}
	rest := encoded[1+n:]
	return rest[:size], rest[size:], nil
}

// maxSignature is the maximum size of a signature in bytes. A signature with a 16384-bit RSA key has this size.
const maxSignature = 2048

// DecodePosition returns the position of an encoded transaction without decoding its rows. It returns CodeInvalid if the
// transaction is malformed.
func DecodePosition(encoded []byte) (Position, error) {
	_, body, err := splitSignature(encoded)
	if err != nil {
		return Position{}, err
	}
	var h TxHead
	if err := open(body, &h); err != nil {
		return Position{}, err
	}
	return h.Position()
}

// Decode decodes a transaction and its rows. It checks neither the signature nor whether the rows
// fit the schema. It returns CodeInvalid if the transaction is malformed.
func Decode(encoded []byte) (*Transaction, error) {
	w, err := OpenTx(encoded)
	if err != nil {
		return nil, err
	}
	tx := &Transaction{Position: w.Pos, At: w.At}
	for _, raw := range w.Rows {
		r, err := DecodeRow(raw)
		if err != nil {
			return nil, bourse.Errorf(bourse.CodeInvalid, "decode a row of transaction %d of %s: %w", tx.Seq, tx.Site, err)
		}
		tx.Rows = append(tx.Rows, r.Row())
	}
	return tx, nil
}

// SignedTx is a transaction whose rows have not been decoded and whose signature has not been
// verified.
type SignedTx struct {
	TxBody
	Pos                Position
	Encoded, sig, body []byte
}

// OpenTx decodes a transaction, but not its rows. It returns CodeInvalid if the transaction is malformed.
func OpenTx(encoded []byte) (*SignedTx, error) {
	s := &SignedTx{Encoded: encoded}
	var err error
	if s.sig, s.body, err = splitSignature(encoded); err != nil {
		return nil, err
	}
	if err = open(s.body, &s.TxBody); err != nil {
		return nil, err
	}
	if s.Pos, err = s.Position(); err != nil {
		return nil, err
	}
	if len(s.Rows) > MaxRows {
		return nil, bourse.Errorf(bourse.CodeInvalid, "the transaction has %d rows, but at most %d are allowed", len(s.Rows), MaxRows)
	}
	return s, nil
}

// Follows reports whether s directly follows prev in its stream, and is linked to it.
func (s *SignedTx) Follows(prev *SignedTx) bool {
	return s.Pos.Stream == prev.Pos.Stream && s.Pos.Seq == prev.Pos.Seq+1 && len(s.Prev) == linkSize && bytes.Equal(s.Prev, Link(prev.Encoded))
}

// DecodeRow decodes a row.
func DecodeRow(raw []byte) (RowBody, error) {
	var w RowBody
	err := ReadBody(raw, &w)
	return w, err
}

// Row converts w to a Row.
func (w RowBody) Row() Row {
	r := Row{Table: w.Table, Key: w.Key, Deleted: w.Deleted, Clock: Clock(w.Clock)}
	if len(w.Columns) > 0 {
		r.Columns = make(map[string]Value, len(w.Columns))
	}
	for name, v := range w.Columns {
		r.Columns[name] = v
	}
	return r
}

// open decodes a transaction's body.
func open(body []byte, into any) error {
	if err := ReadBody(body, into); err != nil {
		return bourse.Errorf(bourse.CodeInvalid, "malformed transaction: %w", err)
	}
	return nil
}

// Position returns the transaction's position. It returns CodeInvalid if the position or the time
// is out of range.
func (h TxHead) Position() (Position, error) {
	p := Position{Stream{bourse.WorkerID(h.Site), h.Epoch}, h.Seq}
	switch {
	case len(h.Site) > MaxName: // the characters of the site's name are validated when its stream is first received
		return Position{}, bourse.Errorf(bourse.CodeInvalid, "malformed transaction: site %s", bourse.Quoted(h.Site))
	case h.Epoch == 0 || h.Epoch >= MaxEpoch || h.Seq == 0 || h.Seq >= MaxSeq:
		return Position{}, bourse.Errorf(bourse.CodeInvalid, "malformed transaction: epoch %d, number %d", h.Epoch, h.Seq)
	case h.At < 0:
		return Position{}, bourse.Errorf(bourse.CodeInvalid, "malformed transaction: its time is before 1970")
	}
	return p, nil
}
