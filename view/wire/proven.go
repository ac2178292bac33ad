package wire

import "github.com/bourse-dev/bourse"

// ProofBody contains a shared row and the data required to verify it, so that the row can be stored
// outside a view.
type ProofBody struct {
	Row   []byte `cbor:"1,keyasint"` // an encoded RowBody that includes Site, Epoch and Sig
	Birth []byte `cbor:"2,keyasint"` // birth certificate of the site's epoch
}

// maxProof is the maximum size of an accepted proof, in bytes.
const maxProof = MaxRow + maxBirth + 1<<10

// EncodeProof encodes a version of a shared row together with its proof.
func EncodeProof(r Version, birth, sig []byte) ([]byte, error) {
	row := BodyOfVersion(r)
	row.Site, row.Epoch, row.Sig = string(r.Site), r.Epoch, sig
	raw, err := EncodeRow(row)
	if err != nil {
		return nil, err
	}
	return EncodeBody(ProofBody{raw, birth})
}

// ProvenRow is the result of decoding a proof.
type ProvenRow struct {
	Stamp
	By  *Author
	Row RowBody
	Raw []byte
}

// OpenProof decodes the result of EncodeProof without verifying it. It returns CodeInvalid if the
// proof is malformed.
func OpenProof(b []byte) (ProvenRow, error) {
	var w ProofBody
	if len(b) > maxProof {
		return ProvenRow{}, bourse.Errorf(bourse.CodeInvalid, "the proof has %d bytes, but at most %d are allowed", len(b), maxProof)
	}
	if err := ReadBody(b, &w); err != nil {
		return ProvenRow{}, bourse.Errorf(bourse.CodeInvalid, "malformed proof: %w", err)
	}
	row, err := DecodeRow(w.Row)
	if err != nil {
		return ProvenRow{}, bourse.Errorf(bourse.CodeInvalid, "malformed proof: %w", err)
	}
	p, err := TxHead{row.Site, row.Epoch, row.Seq, row.At}.Position()
	if err == nil {
		err = p.Site.Validate()
	}
	if err == nil && row.Clock == 0 {
		err = bourse.Errorf(bourse.CodeInvalid, "the proof contains an owned row instead of a shared one")
	}
	return ProvenRow{Stamp{p, row.At}, &Author{Stream: p.Stream, Birth: w.Birth}, row, w.Row}, err
}
