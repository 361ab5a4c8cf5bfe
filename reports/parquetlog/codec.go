package parquetlog

import (
	"sync"

	kzstd "github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/compress/zstd"
)

// A frugal codec is parquet-go's own but for its encoder: that one has a window of 4 MiB and 8 MB
// of history, made anew whenever the collector has emptied the pool, for pages that are hardly ever
// larger than 256 KiB. This one is made once and is a tenth of it. A page larger than the window is
// still a correct frame.
type frugal struct{ zstd.Codec }

var fastest = sync.OnceValue(func() *kzstd.Encoder {
	e, err := kzstd.NewWriter(nil, kzstd.WithEncoderConcurrency(1), kzstd.WithEncoderLevel(kzstd.SpeedFastest),
		kzstd.WithWindowSize(256<<10), kzstd.WithLowerEncoderMem(true), kzstd.WithZeroFrames(true),
		kzstd.WithEncoderCRC(false))
	if err != nil {
		panic(err) // the options are constants
	}
	return e
})

func (c *frugal) Encode(dst, src []byte) ([]byte, error) {
	return fastest().EncodeAll(src, dst[:0]), nil
}

var codec = &frugal{zstd.Codec{Level: zstd.SpeedFastest, Concurrency: 1}}
