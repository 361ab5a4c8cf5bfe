package parquetlog

import (
	"sync"

	kzstd "github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/compress/zstd"
)

// frugal is parquet-go's zstd codec with a different encoder. parquet-go's encoder has a window of
// 4 MiB and 8 MB of history, and is allocated again whenever the garbage collector has emptied the
// pool, although pages are rarely larger than 256 KiB. This encoder is allocated once and needs a
// tenth of the memory. A page larger than the window still gives a valid frame.
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
