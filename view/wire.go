package view

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/fxamacker/cbor/v2"

	"github.com/bourse-dev/bourse"
)

// WireVersion is the first byte of every encoded transaction and snapshot. In a
// transaction the length of a signature follows (uvarint), the signature, and
// its body. Bodies are CBOR with integer keys, in the deterministic encoding of
// RFC 8949 §4.2.1. A release may add keys, which older ones ignore; it changes
// the version only when older ones must not read on.
//
//	1  without signatures; not taken in any more
//	2  signed
const WireVersion = 2

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
	Rows  [][]byte `cbor:"5,keyasint"`
	Birth []byte   `cbor:"6,keyasint,omitempty"` // of the epoch; it stands at least in its first transaction
	Prev  []byte   `cbor:"7,keyasint,omitempty"` // Link of the transaction before
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
	Sig     []byte         `cbor:"10,keyasint,omitempty"` // of a shared row, by its site
	Birth   []byte         `cbor:"11,keyasint,omitempty"` // in snapshots of shared rows: the id of the site's birth
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

// Encode gives a transaction as it goes over the wire, signed. CodeInvalid: it
// exceeds a bound or has a value of a type that no column has.
func Encode(tx *Transaction, by Seal) ([]byte, error) {
	rows := make([][]byte, len(tx.Rows))
	var h hasher
	for i, r := range tx.Rows {
		w, err := wireRowOf(r)
		if err != nil {
			return nil, err
		}
		if r.Clock != 0 {
			if w.Sig, err = sign(by.Key, message(signedRow, by.Cluster, h.encode(r.version(tx.Site)))); err != nil {
				return nil, err
			}
		}
		if rows[i], err = encodeRow(w); err != nil {
			return nil, err
		}
	}
	return encodeTx(tx, rows, by)
}

// version is what a shared row says, as its hash and its signature have it.
func (r Row) version(site bourse.WorkerID) record {
	out := record{table: r.Table, key: r.Key, deleted: r.Deleted, clock: r.Clock, shared: true}
	out.Site = site
	for name, value := range r.Columns { // without those that have their defaults
		if v, err := scalar(value); err == nil && v != nil && v != "" && v != int64(0) && v != 0.0 {
			out.cols = append(out.cols, column{name, v})
		}
	}
	slices.SortFunc(out.cols, byName)
	return out
}

func wireRowOf(r Row) (wireRow, error) {
	w := wireRow{Table: r.Table, Key: r.Key, Deleted: r.Deleted, Clock: uint64(r.Clock)}
	if len(r.Columns) > 0 {
		w.Columns = make(map[string]any, len(r.Columns))
	}
	for name, v := range r.Columns {
		value, err := scalar(v)
		if err != nil {
			return w, bourse.Errorf(bourse.CodeInvalid, "column %s of row %s in %s: %w", name, bourse.Quoted(r.Key), r.Table, err)
		}
		w.Columns[name] = value
	}
	return w, nil
}

func encodeRow(w wireRow) ([]byte, error) {
	b, err := wire.enc.Marshal(w)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "encode row %s of %s: %w", bourse.Quoted(w.Key), w.Table, err)
	}
	return b, nil
}

func encodeTx(tx *Transaction, rows [][]byte, by Seal) ([]byte, error) {
	if len(rows) > MaxRows {
		return nil, bourse.Errorf(bourse.CodeInvalid, "a transaction of %d rows, at most %d", len(rows), MaxRows)
	}
	body, err := wire.enc.Marshal(wireTx{wireHeader{string(tx.Site), tx.Epoch, tx.Seq, tx.At}, rows, by.Birth, by.Prev})
	if err != nil {
		return nil, fmt.Errorf("encode transaction: %w", err)
	}
	b, err := seal(body, by)
	if err == nil && len(b) > MaxTx {
		err = bourse.Errorf(bourse.CodeInvalid, "a transaction of %d bytes, at most %d", len(b), MaxTx)
	}
	return b, err
}

// seal signs the body of a transaction.
func seal(body []byte, by Seal) ([]byte, error) {
	sig, err := sign(by.Key, message(signedTransaction, by.Cluster, body))
	if err != nil {
		return nil, err
	}
	b := make([]byte, 0, 1+binary.MaxVarintLen16+len(sig)+len(body))
	b = binary.AppendUvarint(append(b, WireVersion), uint64(len(sig)))
	return append(append(b, sig...), body...), nil
}

// unseal takes an encoded transaction apart.
func unseal(encoded []byte) (sig, body []byte, err error) {
	switch {
	case len(encoded) == 0:
		return nil, nil, bourse.Errorf(bourse.CodeInvalid, "an empty transaction")
	case len(encoded) > maxFrame:
		return nil, nil, bourse.Errorf(bourse.CodeInvalid, "a transaction of %d bytes, at most %d", len(encoded), maxFrame)
	case encoded[0] != WireVersion:
		return nil, nil, bourse.Errorf(bourse.CodeInvalid, "a transaction in wire version %d, this release reads %d", encoded[0], WireVersion)
	}
	size, n := binary.Uvarint(encoded[1:])
	if n <= 0 || size > maxSignature || uint64(len(encoded)-1-n) < size {
		return nil, nil, bourse.Errorf(bourse.CodeInvalid, "a transaction that is cut short")
	}
	rest := encoded[1+n:]
	return rest[:size], rest[size:], nil
}

// maxSignature bounds a signature: RSA of 16384 bits.
const maxSignature = 2048

// Peek gives the position of an encoded transaction, without a look at its
// rows. CodeInvalid: it is none.
func Peek(encoded []byte) (Position, error) {
	_, body, err := unseal(encoded)
	if err != nil {
		return Position{}, err
	}
	var h wireHeader
	if err := open(body, &h); err != nil {
		return Position{}, err
	}
	return h.position()
}

// Decode gives an encoded transaction. CodeInvalid: it is malformed. Neither is
// its signature checked, nor what its rows say compared with any schema.
func Decode(encoded []byte) (*Transaction, error) {
	w, err := openTx(encoded)
	if err != nil {
		return nil, err
	}
	tx := &Transaction{Position: w.at, At: w.At}
	for _, raw := range w.Rows {
		r, err := decodeRow(raw)
		if err != nil {
			return nil, bourse.Errorf(bourse.CodeInvalid, "decode a row of transaction %d of %s: %w", tx.Seq, tx.Site, err)
		}
		tx.Rows = append(tx.Rows, r.row())
	}
	return tx, nil
}

// sealed is a transaction whose rows are still encoded and whose signature was
// not looked at.
type sealed struct {
	wireTx
	at                 Position
	encoded, sig, body []byte
}

func openTx(encoded []byte) (*sealed, error) {
	s := &sealed{encoded: encoded}
	var err error
	if s.sig, s.body, err = unseal(encoded); err != nil {
		return nil, err
	}
	if err = open(s.body, &s.wireTx); err != nil {
		return nil, err
	}
	if s.at, err = s.position(); err != nil {
		return nil, err
	}
	if len(s.Rows) > MaxRows {
		return nil, bourse.Errorf(bourse.CodeInvalid, "a transaction of %d rows, at most %d", len(s.Rows), MaxRows)
	}
	return s, nil
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

// open decodes a body.
func open(body []byte, into any) error {
	if err := wire.dec.Unmarshal(body, into); err != nil {
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
