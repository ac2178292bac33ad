package wire

import "github.com/bourse-dev/bourse"

// ProofBody is a shared row with all that it takes to verify it, for those who
// keep it elsewhere than in a view.
type ProofBody struct {
	Row   []byte `cbor:"1,keyasint"` // a wireRow, with Site, Epoch and Sig
	Birth []byte `cbor:"2,keyasint"` // of the epoch
}

// maxProof bounds a proof that is taken in.
const maxProof = MaxRow + maxBirth + 1<<10

// EncodeProof writes the proof of a version of a shared row.
func EncodeProof(r Version, birth, sig []byte) ([]byte, error) {
	row := BodyOfVersion(r)
	row.Site, row.Epoch, row.Sig = string(r.Site), r.Epoch, sig
	raw, err := EncodeRow(row)
	if err != nil {
		return nil, err
	}
	return EncodeBody(ProofBody{raw, birth})
}

// ProvenRow is a proof, taken apart.
type ProvenRow struct {
	Stamp
	By  *Author
	Row RowBody
	Raw []byte
}

// OpenProof takes a proof apart. CodeInvalid: it is none.
func OpenProof(b []byte) (ProvenRow, error) {
	var w ProofBody
	if len(b) > maxProof {
		return ProvenRow{}, bourse.Errorf(bourse.CodeInvalid, "a proof of %d bytes, at most %d", len(b), maxProof)
	}
	if err := ReadBody(b, &w); err != nil {
		return ProvenRow{}, bourse.Errorf(bourse.CodeInvalid, "a malformed proof: %w", err)
	}
	row, err := DecodeRow(w.Row)
	if err != nil {
		return ProvenRow{}, bourse.Errorf(bourse.CodeInvalid, "a malformed proof: %w", err)
	}
	p, err := TxHead{row.Site, row.Epoch, row.Seq, row.At}.Position()
	if err == nil {
		err = p.Site.Validate()
	}
	if err == nil && row.Clock == 0 {
		err = bourse.Errorf(bourse.CodeInvalid, "a proof of an owned row")
	}
	return ProvenRow{Stamp{p, row.At}, &Author{Stream: p.Stream, Birth: w.Birth}, row, w.Row}, err
}
