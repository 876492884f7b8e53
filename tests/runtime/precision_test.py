"""Tests of the precisions that clients may compute in."""

import os

import pytest

from tff_fedemb.runtime import precision

_AMX = 'flags\t\t: fpu avx512_bf16 amx_bf16 amx_tile\n'
_AVX = 'flags\t\t: fpu avx512_bf16\n'
_OLD = 'flags\t\t: fpu avx2\n'
_ARM = 'Features\t: fp asimd bf16\n'


@pytest.fixture
def set_processor(tmp_path, monkeypatch):
  def set_features(text):
    path = tmp_path / 'cpuinfo'
    path.write_text('processor\t: 0\n' + text)
    monkeypatch.setattr(precision, '_CPU_INFO', path)

  return set_features


@pytest.mark.parametrize(
    ('features', 'expected'),
    [
        (_AMX, ('float32', 'bfloat16_math', 'mixed_bfloat16')),
        (_ARM, ('float32', 'bfloat16_math', 'mixed_bfloat16')),
        (_AVX, ('float32', 'mixed_bfloat16')),
        (_OLD, ('float32',)),
    ],
)
def test_supported_precisions(set_processor, features, expected):
  set_processor(features)
  assert precision.supported_precisions() == expected


def test_unknown_processor_has_float32_alone(tmp_path, monkeypatch):
  monkeypatch.setattr(precision, '_CPU_INFO', tmp_path / 'none')
  assert precision.supported_precisions() == ('float32',)


def test_refuses_what_the_processor_would_ignore(set_processor):
  set_processor(_AVX)
  precision.check_precision('mixed_bfloat16')
  with pytest.raises(
      ValueError,
      match='must be one of float32, mixed_bfloat16 on this processor, found'
      ' bfloat16_math, which needs amx_bf16 or bf16',
  ):
    precision.check_precision('bfloat16_math')
  with pytest.raises(ValueError, match="found 'half'"):
    precision.check_precision('half')


def test_sets_the_mode_of_onednn_only_where_asked(monkeypatch):
  name = 'ONEDNN_DEFAULT_FPMATH_MODE'
  monkeypatch.setenv(name, 'STRICT')
  precision.set_math_mode('float32')
  precision.set_math_mode('mixed_bfloat16')
  assert os.environ[name] == 'STRICT'
  precision.set_math_mode('bfloat16_math')
  assert os.environ[name] == 'BF16'
