package roles

import (
	"io"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/liqod/liqod/roles/config"
)

// newLogger returns a logger that writes to w in the configured form.
func newLogger(cfg config.Log, w io.Writer) *zap.Logger {
	level, _ := zapcore.ParseLevel(cfg.Level) // the configuration accepts levels only
	encoding := zap.NewProductionEncoderConfig()
	encoding.TimeKey = "time"
	encoding.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	encoding.EncodeDuration = zapcore.StringDurationEncoder
	encoder := zapcore.NewJSONEncoder(encoding)
	if cfg.Format == "console" {
		encoding.EncodeLevel = zapcore.CapitalLevelEncoder
		encoding.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		encoder = zapcore.NewConsoleEncoder(encoding)
	}
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(w)), level))
}
